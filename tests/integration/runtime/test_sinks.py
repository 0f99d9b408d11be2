"""Continuous queries into sinks that are no Paimon tables: `print` and `blackhole`."""

from __future__ import annotations

import pytest
from tests.integration.runtime.conftest import CollectedOutput, Shop

from streamhouse.errors import OptionError, UnsupportedSqlError
from streamhouse.runtime.monitoring.status import Statuses
from streamhouse.runtime.script import ScriptOptions, ScriptRunner
from streamhouse.sql.statements.script import parse_script

pytestmark = pytest.mark.usefixtures("in_threads")

PEOPLE = """
CREATE TABLE IF NOT EXISTS people (id INT, country STRING, PRIMARY KEY (id) NOT ENFORCED)
  WITH ('bucket' = '1', 'changelog-producer' = 'input');
"""
SHOWN = """
CREATE TEMPORARY TABLE shown (id INT, country STRING) WITH ('connector' = 'print');
INSERT INTO shown SELECT id, country FROM people WHERE id < 9;
"""
MADE = """
CREATE TEMPORARY TABLE made (id INT) WITH ('connector' = 'datagen', 'number-of-rows' = '3',
  'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '3');
CREATE TEMPORARY TABLE shown (id INT) WITH ('connector' = 'print');
CREATE TEMPORARY TABLE gone (id INT) WITH ('connector' = 'blackhole');
"""


def test_changes_are_printed_and_go_on_where_they_stopped(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.do(f"{PEOPLE} INSERT INTO people VALUES (1, 'Kenya'), (2, 'China'), (9, 'Peru');")
    shop.settle_here(PEOPLE + SHOWN)
    assert sorted(capsys.readouterr().out.splitlines()) == ["+I[1, Kenya]", "+I[2, China]"]

    shop.do("UPDATE people SET country = 'Chad' WHERE id = 2; DELETE FROM people WHERE id = 1;")
    shop.settle_here(PEOPLE + SHOWN)
    assert capsys.readouterr().out.splitlines() == ["-U[2, China]", "+U[2, Chad]", "-D[1, Kenya]"]

    shop.settle_here(PEOPLE + SHOWN)
    assert capsys.readouterr().out == ""
    shop.settle_here(PEOPLE + SHOWN, from_scratch=True)
    assert capsys.readouterr().out == "+I[2, Chad]\n"
    assert shop.rows("people") == [{"id": 2, "country": "Chad"}, {"id": 9, "country": "Peru"}]


def test_a_batch_that_was_cut_off_is_printed_again(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.do(f"{PEOPLE} INSERT INTO people VALUES (1, 'Kenya');")
    with shop.failing_here(PEOPLE + SHOWN, "target-committed:0"):
        pass
    assert capsys.readouterr().out == "+I[1, Kenya]\n"
    shop.do("INSERT INTO people VALUES (2, 'China');")

    shop.settle_here(PEOPLE + SHOWN)

    assert capsys.readouterr().out == "+I[1, Kenya]\n+I[2, China]\n"


def test_no_warehouse_is_needed(spark_here: None, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"""{MADE}
        INSERT INTO shown SELECT id FROM made WHERE id > 1;
        INSERT INTO gone SELECT id FROM made;"""
    for _ in range(2):
        output = CollectedOutput()
        ScriptRunner(ScriptOptions("made", until_caught_up=True), output).run(parse_script(text))

        assert (capsys.readouterr().out, output.lines) == ("+I[2]\n+I[3]\n", [])


def test_statements_that_end_print_too(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    output = shop.settle_here(
        f"""{PEOPLE} {MADE}
        INSERT INTO people VALUES (1, 'Kenya');
        INSERT INTO shown VALUES (7), (8);
        SET 'execution.runtime-mode' = 'batch';
        INSERT INTO shown /*+ OPTIONS('print-identifier' = 'all') */ SELECT id FROM made;
        INSERT INTO gone SELECT id FROM people;"""
    )

    printed = capsys.readouterr().out.splitlines()
    assert printed == ["+I[7]", "+I[8]", "all> +I[1]", "all> +I[2]", "all> +I[3]"]
    assert "notice: gone: 1 row written" in output


def test_a_sink_of_the_name_of_a_table_leaves_the_table_alone(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.do("CREATE TABLE shown (id INT); INSERT INTO shown VALUES (5);")
    text = f"{MADE} INSERT INTO shown SELECT id FROM made;"
    shop.settle_here(text)
    shop.settle_here(text, from_scratch=True)

    assert capsys.readouterr().out == "+I[1]\n+I[2]\n+I[3]\n" * 2
    assert shop.rows("shown") == [{"id": 5}]


def test_the_status_names_the_sink(shop: Shop) -> None:
    script = f"{MADE} INSERT INTO gone SELECT id FROM made;"
    run = shop.run(script, "--until-caught-up", "--name", "sinks", spark=False)

    assert (run.code, run.out) == (0, "")
    status = Statuses(shop.warehouse.options).read("sinks")
    assert status is not None
    assert [(query.target, query.rows) for query in status.queries] == [
        ("default.gone$blackhole", 3)
    ]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (
            "INSERT INTO gone SELECT id FROM shown",
            UnsupportedSqlError,
            r"table 'shown' \(connector 'print'\) can only be written",
        ),
        (
            "INSERT OVERWRITE shown VALUES (1)",
            UnsupportedSqlError,
            "OVERWRITE needs a Paimon table; shown has the connector 'print'",
        ),
        (
            "INSERT INTO shown /*+ OPTIONS('print-identifer' = 'x') */ SELECT id FROM made",
            OptionError,
            "unknown option 'print-identifer'; did you mean 'print-identifier'",
        ),
        ("UPDATE shown SET id = 1", UnsupportedSqlError, "only Paimon tables can be changed"),
        (
            "SET 'execution.runtime-mode' = 'batch'; SELECT * FROM shown",
            OptionError,
            "connector 'print' cannot be read",
        ),
    ],
)
def test_unsupported_statements_are_errors(
    shop: Shop, text: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        shop.settle_here(f"{MADE} {text};")
