"""Views get other queries by REFRESH; their columns change; `diff` says before what will change."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.views.view_session import ViewSession
from typer.testing import CliRunner

from streamhouse.cli.main import build
from streamhouse.errors import SqlError, TableError
from streamhouse.paimon.catalog.draft_table import altered, declared_table
from streamhouse.paimon.catalog.table_declaration import TableDeclaration
from streamhouse.runtime.replacement.difference import ViewDifference, view_difference
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import column_changes
from streamhouse.sql.statements.script import parse_script

_COUNT = "SELECT country, COUNT(*) AS n FROM customers GROUP BY country"
_NAMES = "SELECT country, COUNT(DISTINCT name) AS n FROM customers GROUP BY country"
_BOTH = "SELECT country, MAX(name) AS name, COUNT(*) AS n FROM customers GROUP BY country"
_WIDER = {"INT": "BIGINT", "BIGINT": "DECIMAL(38, 0)", "STRING": "STRING"}


@pytest.fixture
def shop(tmp_path: Path) -> ViewSession:
    session = ViewSession(tmp_path / "lake")
    session.execute(
        "INSERT INTO customers VALUES (1, 'x', 'DE', TRUE), (2, 'x', 'DE', TRUE), "
        f"(3, 'y', 'FR', FALSE); CREATE MATERIALIZED VIEW v AS {_COUNT}; "
        "ALTER MATERIALIZED VIEW v REFRESH"
    )
    return session


def compared(shop: ViewSession, script: str | None = None) -> ViewDifference:
    statements = None if script is None else parse_script(f"USE shop; {script}")
    return view_difference(shop.warehouse, "shop.v", statements, 2)


def test_a_difference_is_what_the_swap_then_changes(shop: ViewSession) -> None:
    with pytest.raises(TableError, match="no next query"):
        compared(shop)
    before = compared(shop, f"CREATE OR REPLACE MATERIALIZED VIEW v AS {_NAMES}")
    assert before.changes == {"-U": 1, "+U": 1} and not before.equal
    assert before.first == [
        ("-U", {"country": "DE", "n": 2}),
        ("+U", {"country": "DE", "n": 1}),
    ]
    assert compared(shop, f"CREATE OR REPLACE MATERIALIZED VIEW v AS {_COUNT}").equal
    shop.execute(f"ALTER MATERIALIZED TABLE v AS {_NAMES}")
    assert compared(shop) == before
    shop.check("v", _COUNT)
    shop.execute("ALTER MATERIALIZED VIEW v REFRESH")
    shop.restart()
    shop.check("v", _NAMES)


def test_a_difference_names_columns(shop: ViewSession) -> None:
    found = compared(shop, f"CREATE OR REPLACE MATERIALIZED VIEW v AS {_BOTH}")
    assert (found.new_columns, found.dropped_columns) == (("name",), ())
    assert found.changes == {"-U": 2, "+U": 2} and len(found.first) == 2
    shop.execute(f"ALTER MATERIALIZED VIEW v AS {_BOTH}; ALTER MATERIALIZED VIEW v REFRESH")
    shop.restart()
    assert shop.rows("SELECT * FROM v") == shop.rows(_BOTH)
    shop.execute("ALTER MATERIALIZED VIEW v ROLLBACK; ALTER MATERIALIZED VIEW v REFRESH")
    shop.restart()
    assert shop.rows("SELECT * FROM v") == shop.rows(_COUNT)
    shop.execute("ALTER MATERIALIZED VIEW v ROLLBACK; ALTER MATERIALIZED VIEW v REFRESH")
    assert shop.rows("SELECT * FROM v") == shop.rows(_BOTH)


def test_a_column_that_another_view_reads_is_not_dropped(shop: ViewSession) -> None:
    shop.execute("CREATE MATERIALIZED VIEW w AS SELECT n FROM v WHERE country IS NOT NULL")
    with pytest.raises(TableError, match="view w reads n, which it drops"):
        shop.execute("ALTER MATERIALIZED VIEW v AS SELECT country FROM customers GROUP BY country")
    shop.execute("ALTER MATERIALIZED VIEW w AS SELECT country FROM v")
    shop.execute("ALTER MATERIALIZED VIEW v AS SELECT country FROM customers GROUP BY country")
    shop.execute("ALTER MATERIALIZED VIEW v REFRESH; ALTER MATERIALIZED VIEW w REFRESH")
    assert shop.rows("SELECT * FROM w") == shop.rows("SELECT DISTINCT country FROM customers")


def test_a_column_is_read_after_the_swap_only(shop: ViewSession) -> None:
    reader = "CREATE MATERIALIZED VIEW w AS SELECT name FROM v"
    with pytest.raises(SqlError, match="view v gets it with its new query"):
        shop.execute(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {_BOTH}; {reader}")
    shop.execute(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {_BOTH}")
    shop.execute("ALTER MATERIALIZED VIEW v REFRESH")
    shop.execute(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {_BOTH}; {reader}")


def test_the_command_prints_the_difference(shop: ViewSession) -> None:
    shop.execute(f"ALTER MATERIALIZED VIEW v AS {_NAMES}")
    command = ["diff", "shop.v", "--warehouse", str(shop.folder)]
    result = CliRunner().invoke(build(command), command)
    assert result.exit_code == 3 and "0 added, 1 changed, 0 removed" in result.output
    found = json.loads(CliRunner().invoke(build(command), [*command, "--json"]).output)
    assert found["changed"] == 1 and found["rows"][1] == {
        "kind": "+U",
        "row": {"country": "DE", "n": 1},
    }
    shop.execute(f"ALTER MATERIALIZED VIEW v AS {_COUNT}")
    assert CliRunner().invoke(build(command), command).exit_code == 1, "it was withdrawn"


@pytest.mark.parametrize("seed", range(30))
def test_changes_of_columns_lead_to_the_columns(seed: int) -> None:
    rng = random.Random(seed)
    before = [Column("id", "INT", False)]
    before += [Column(name, rng.choice(list(_WIDER))) for name in rng.sample("abcdef", 4)]
    kept = [before[0], *rng.sample(before[1:], rng.randint(0, 4))]
    kept[1:] = [replace(c, type=rng.choice((c.type, _WIDER[c.type]))) for c in kept[1:]]
    new = [Column(name, "STRING", rng.random() < 0.5) for name in "gh" if rng.random() < 0.6]
    after = [*kept, *new]
    rng.shuffle(after)
    table = declared_table("d.t", TableDeclaration(before, ["id"], [], {"bucket": "1"}))
    columns = altered(table, list(column_changes(before, after))).columns
    assert [(c.name, c.type) for c in columns] == [(c.name, c.type) for c in after]
    assert all(c.nullable for c in columns if c.name in Counter(each.name for each in new))
