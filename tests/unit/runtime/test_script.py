"""Statements of a script that need no Spark, and their errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.errors import OptionError, SqlError, StreamhouseError, TableError
from streamhouse.runtime.run_output import RunOutput
from streamhouse.runtime.script import ScriptOptions, ScriptRunner
from streamhouse.sql.statements.script import parse_script


class CollectedOutput(RunOutput):
    """An output that keeps what it is given."""

    def __init__(self) -> None:
        self.notices: list[str] = []
        self.tables: list[list[dict[str, Any]]] = []
        self.changed: list[dict[str, Any]] = []

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def rows(self, reader: pa.RecordBatchReader) -> None:
        self.tables.append(reader.read_all().to_pylist())

    def changes(self, batch: pa.RecordBatch) -> None:
        self.changed.extend(batch.to_pylist())


Run = Callable[[str], CollectedOutput]

PEOPLE = """
CREATE TABLE people (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1');
INSERT INTO people VALUES (1, 'Ann'), (2, 'Ben');
"""
BATCH = "SET 'execution.runtime-mode' = 'batch';"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a script over one warehouse, until it has caught up."""

    def go(text: str) -> CollectedOutput:
        output = CollectedOutput()
        options = ScriptOptions("s.sql", {"warehouse": str(tmp_path)}, until_caught_up=True)
        ScriptRunner(options, output).run(parse_script(text))
        return output

    return go


def test_values_and_bounded_queries(run: Run) -> None:
    output = run(PEOPLE + BATCH + "SELECT name FROM people WHERE id = 2;")
    assert output.notices == ["people: 2 rows written"]
    assert output.tables == [[{"name": "Ben"}]]
    output = run(
        BATCH + "INSERT INTO people SELECT id + 1, name FROM people; SELECT * FROM people;"
    )
    assert [tuple(row.values()) for row in output.tables[0]] == [(1, "Ann"), (2, "Ann"), (3, "Ben")]


def test_insert_overwrite_replaces_all_rows(run: Run) -> None:
    run(PEOPLE)
    output = run("INSERT OVERWRITE people VALUES (7, 'Eve');" + BATCH + "SELECT * FROM people;")
    assert output.tables == [[{"id": 7, "name": "Eve"}]]
    with pytest.raises(SqlError, match="line 1, column 1: INSERT OVERWRITE from a stream"):
        run("INSERT OVERWRITE people SELECT id, name FROM people;")


def test_insert_takes_columns_by_name_and_leaves_the_rest_null(run: Run) -> None:
    insert = "INSERT INTO people (name, id) VALUES ('Zoe', 9); INSERT INTO people (id) VALUES (8);"
    output = run(PEOPLE + insert + BATCH + "SELECT name FROM people WHERE id > 7 ORDER BY id;")
    assert output.tables == [[{"name": None}, {"name": "Zoe"}]]


def test_a_select_over_a_table_prints_its_rows_as_changes(run: Run) -> None:
    output = run(PEOPLE + "SELECT id FROM people WHERE name <> 'Ben';")
    assert output.changed == [{"rowkind": "+I", "id": 1}]


def test_a_bounded_generator_ends(run: Run) -> None:
    output = run(
        """
        CREATE TEMPORARY TABLE made (id INT) WITH (
          'connector' = 'datagen', 'fields.id.kind' = 'sequence', 'fields.id.start' = '1',
          'fields.id.end' = '3'
        );
        SELECT id * 2 AS twice FROM made;
        """
    )
    assert [row["twice"] for row in output.changed] == [2, 4, 6]


def test_show_describe_set_explain(run: Run) -> None:
    output = run(
        PEOPLE
        + "SHOW CATALOGS; SHOW DATABASES; SHOW TABLES; DESCRIBE people;"
        + "SET 'pipeline.name' = 'p'; SET; RESET; SET; EXPLAIN SELECT id FROM people;"
    )
    names = [[row[next(iter(row))] for row in table] for table in output.tables]
    assert names[:6] == [
        ["default_catalog"], ["default"], ["people"], ["id", "name"], ["pipeline.name"], []
    ]  # fmt: skip
    assert names[6][0] == "source: default_catalog.default.people (id)"


def test_explain_shows_what_a_sink_guarantees(run: Run) -> None:
    output = run(
        PEOPLE
        + "CREATE TEMPORARY TABLE shown (id INT) WITH ('connector' = 'print');"
        + "EXPLAIN INSERT INTO shown SELECT id FROM people;"
        + "CREATE TABLE copy (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED);"
        + "EXPLAIN INSERT INTO copy SELECT id + 9, name FROM people;"
    )
    assert [rows[-1]["plan"] for rows in output.tables] == [
        "sink: default_catalog.default.shown (connector 'print'), at-least-once: a batch that runs "
        "again is printed again",
        "sink: default_catalog.default.copy (connector 'paimon'), exactly-once: each micro-batch "
        "is one commit, and a batch that runs again finds it",
    ]


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("CREATE TABLE t (id INT) WITH ('buket' = '1')", OptionError, "did you mean 'bucket'"),
        ("SET 'pipeline.nam' = 'x'", OptionError, "did you mean 'pipeline.name'"),
        ("INSERT INTO peopel VALUES (1, 'a')", TableError, "did you mean 'people'"),
        ("INSERT INTO people VALUES (3)", SqlError, "returns 1 column"),
        ("INSERT INTO people VALUES (CAST(NULL AS INT), 'x')", TableError, "cannot be null"),
        ("INSERT INTO people VALUES (1 / 0, 'x')", StreamhouseError, "Division by zero"),
        ("SELECT nam FROM people", SqlError, "did you mean 'name'"),
        ("USE nosuch", TableError, "there is no database 'nosuch'"),
        ("USE CATALOG nosuch", TableError, "known: default_catalog"),
        ("CREATE CATALOG c WITH ('type' = 'paimon', 'warehous' = '/x')", OptionError, "warehouse"),
        ("CREATE CATALOG c WITH ('type' = 'hive')", OptionError, "must be 'paimon'"),
        ("CREATE TEMPORARY TABLE t (id INT)", OptionError, "needs a 'connector'"),
        ("CREATE TABLE t (id INT) WITH ('connector' = 'datagn')", OptionError, "'datagen'"),
        ("DROP TABLE nosuch", TableError, "known: people"),
    ],
)
def test_mistakes_have_their_place(
    run: Run, text: str, kind: type[StreamhouseError], message: str
) -> None:
    run(PEOPLE)
    with pytest.raises(kind, match=r"line 2, column \d+: ") as caught:
        run("-- a comment\n" + text)
    assert message in str(caught.value)


def test_two_inserts_into_one_table_need_two_names(run: Run, tmp_path: Path) -> None:
    run(PEOPLE + "CREATE TABLE copy (id INT) WITH ('bucket' = '-1');")
    insert = "INSERT INTO copy SELECT id FROM people;\n"
    with pytest.raises(SqlError, match=r"line 2, column 1: two INSERTs .* 'pipeline.name'"):
        run(insert + insert)
    # The lock of the first is free again.
    with pytest.raises(SqlError, match="two INSERTs"):
        run(insert + insert)
    assert not (tmp_path / "default.db/copy/snapshot").exists()


def test_inserts_from_two_tables_into_one_are_two_queries(run: Run, tmp_path: Path) -> None:
    run(PEOPLE + "CREATE TABLE others (id INT); CREATE TABLE copy (id INT);")
    inserts = "INSERT INTO copy SELECT id FROM people;\nINSERT INTO copy SELECT id FROM others;\n"
    with pytest.raises(SqlError, match=r"line 3, column 1: two INSERTs .* UNION ALL"):
        run(inserts + "INSERT INTO copy SELECT id + 1 FROM others;")
    made = {path.name for path in (tmp_path / ".checkpoints/s.sql").iterdir()}
    assert made == {"default.copy", "default.copy+default.others"}


def test_a_query_keeps_its_place_when_another_insert_is_put_before_it(
    run: Run, tmp_path: Path
) -> None:
    run(PEOPLE + "CREATE TABLE others (id INT); CREATE TABLE copy (id INT);")
    folder = tmp_path / ".checkpoints/s.sql/default.copy"
    folder.mkdir(parents=True)
    scan = {"table": {"name": ["default_catalog", "default", "others"]}}
    record = {"fingerprint": "", "definition": json.dumps({"query": {"scan": scan}})}
    (folder / "query.json").write_text(json.dumps(record))
    with pytest.raises(SqlError, match=r"line 2, column 1: so far only the query over others"):
        run("INSERT INTO copy SELECT id FROM people;\nINSERT INTO copy SELECT id FROM others;\n")


def test_a_hint_on_a_continuous_insert_is_not_passed_over(run: Run) -> None:
    run(PEOPLE + "CREATE TABLE copy (id INT);")
    text = "INSERT INTO copy /*+ OPTIONS('{}' = '2') */ "
    with pytest.raises(SqlError, match=r"ALTER TABLE copy SET \('bucket' = '…'\)"):
        run(text.format("bucket") + "SELECT id FROM people;")
    with pytest.raises(SqlError, match="there is no column 'nam'"):
        run(text.format("sink.parallelism") + "SELECT nam FROM people;")


@pytest.mark.parametrize("scheme", ["file:", "file://", ""])
def test_a_catalog_may_be_a_file_uri(tmp_path: Path, scheme: str) -> None:
    folder, output = tmp_path / "ware house", CollectedOutput()
    text = (
        f"SET 'state.backend' = 'rocksdb'; CREATE CATALOG c WITH ('type' = 'paimon', "
        f"'warehouse' = '{scheme}{folder}'); USE CATALOG c; {PEOPLE}"
    )
    ScriptRunner(ScriptOptions("s.sql"), output).run(parse_script(text))
    assert (folder / "default.db/people/snapshot").is_dir()
    assert "SET 'state.backend' has no effect here" in output.notices[0]


def test_show_lists_the_requested_objects(run: Run) -> None:
    table = (
        "CREATE TABLE other.t (k STRING COMMENT 'a ''key''', id INT, v DECIMAL(10, 2), "
        "p AS PROCTIME(), PRIMARY KEY (k, id) NOT ENFORCED) PARTITIONED BY (k) "
        "WITH ('bucket' = '1');"
    )
    source = (
        "CREATE TEMPORARY TABLE s (id INT) WITH ('connector' = 'jdbc', 'url' = "
        "'jdbc:mysql://h/d', 'table-name' = 's', 'username' = 'u', 'password' = 'hidd3n');"
    )
    output = run(
        f"{PEOPLE} {source} CREATE DATABASE other; {table} SHOW CURRENT CATALOG; USE other;"
        "SHOW CURRENT DATABASE; SHOW TABLES; SHOW TABLES IN `default`; SHOW COLUMNS FROM t;"
        "SHOW CREATE TABLE t; SHOW CREATE TABLE `default`.s; SHOW FUNCTIONS;"
    )
    names = [[row[next(iter(row))] for row in displayed] for displayed in output.tables]
    assert names[:4] == [["default_catalog"], ["other"], ["t"], ["people", "s"]]
    assert names[4] == ["k", "id", "v", "p"]
    ((made,), (secret,), known) = names[5:]
    assert "SUBSTRING" in known and "hidd3n" not in secret and "'password' = '****'" in secret
    assert secret.startswith("CREATE TEMPORARY TABLE `default`.`s` (\n  `id` INT\n)")
    before = run("USE other; DESCRIBE t;").tables
    again = run("DROP TABLE other.t; " + made + "; SHOW CREATE TABLE other.t; DESCRIBE other.t;")
    assert again.tables == [[{"create table": made}], *before]
    with pytest.raises(SqlError, match="line 1, column 1: SHOW JOBS would list nothing"):
        run("SHOW JOBS")


def test_an_empty_table_is_followed_from_its_end(run: Run) -> None:
    output = run(
        "CREATE TABLE t (id INT) WITH ('bucket' = '-1');"
        "SELECT * FROM t /*+ OPTIONS('scan.mode' = 'latest') */;"
    )
    assert output.changed == []


def test_a_table_that_feeds_itself_is_refused(run: Run) -> None:
    with pytest.raises(SqlError, match="line 4, column 1: .* feed itself"):
        run(PEOPLE + "INSERT INTO people SELECT id + 1, name FROM people;")


TRAVELS = """
CREATE TABLE t (id INT, v INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1');
INSERT INTO t VALUES (1, 1);
INSERT INTO t VALUES (1, 2);
"""


def test_queries_of_one_time_end_in_any_mode(run: Run) -> None:
    output = run(
        TRAVELS + "SELECT v FROM t VERSION AS OF 1;"
        "SELECT a.v AS a, b.v AS b FROM t VERSION AS OF 1 AS a JOIN t VERSION AS OF 2 AS b "
        "ON a.id = b.id;"
        "SELECT snapshot_id FROM t$snapshots ORDER BY 1;"
        "INSERT INTO t SELECT id + 1, v FROM t VERSION AS OF 1;" + BATCH + "SELECT * FROM t;"
    )
    assert output.tables[:2] == [[{"v": 1}], [{"a": 1, "b": 2}]]
    assert output.tables[2] == [{"snapshot_id": 1}, {"snapshot_id": 2}]
    assert [tuple(row.values()) for row in output.tables[3]] == [(1, 2), (2, 1)]
    (described,) = run("DESCRIBE t$tags;").tables
    assert described[0] == {"name": "tag_name", "type": "STRING", "null": "FALSE", "key": None}


def test_a_branch_is_written_by_its_name(run: Run, tmp_path: Path) -> None:
    from pypaimon import CatalogFactory

    run(TRAVELS)
    table = CatalogFactory.create({"warehouse": str(tmp_path)}).get_table("default.t")
    table.create_tag("one", 1)
    table.branch_manager().create_branch("b", "one")
    output = run(
        "INSERT INTO t$branch_b VALUES (5, 5); INSERT INTO `t$branch_b` VALUES (6, 6);"
        + BATCH
        + "SELECT * FROM t$branch_b ORDER BY id; SELECT * FROM t;"
        "SELECT * FROM t /*+ OPTIONS('branch' = 'b') */ AS x WHERE x.id = 6;"
        "INSERT OVERWRITE t$branch_b SELECT id, v FROM t; SELECT * FROM t$branch_b;"
    )
    assert output.notices[0] == "t$branch_b: 1 row written"
    found = [[tuple(row.values()) for row in table] for table in output.tables]
    assert found == [[(1, 1), (5, 5), (6, 6)], [(1, 2)], [(6, 6)], [(1, 2)]]
    for text, message in (
        ("INSERT INTO t$branch_c VALUES (1, 1);", "has no branch 'c'; known: b"),
        ("INSERT INTO t$options VALUES ('a', 'b');", "is a system table"),
        ("CREATE TABLE t$x (id INT);", "choose another name"),
        ("DROP TABLE t$branch_b;", "no table 't$branch_b'"),
    ):
        with pytest.raises(StreamhouseError, match=re.escape(message)):
            run(text)


def test_a_misspelt_option_is_an_error_that_names_the_nearest(run: Run) -> None:
    create = "CREATE TABLE t (k INT PRIMARY KEY NOT ENFORCED, s INT) WITH ({});"
    merging = "'merge-engine' = 'aggregation', 'fields.s.aggregate-function' = '{}'"
    for options, message in (
        (
            "'lookup.wait' = 'true'",
            "unknown table option 'lookup.wait'; did you mean 'lookup-wait'?",
        ),
        ("'sequnce.field' = 's'", "unknown table option 'sequnce.field'"),
        ("'merge-engine' = 'aggregate'", "not one of deduplicate, partial-update, aggregation"),
        (merging.format("SUM"), "no function 'SUM'; did you mean 'sum'?"),
        (merging.format("last_non_null"), "did you mean 'last_non_null_value'?"),
    ):
        with pytest.raises(OptionError, match=re.escape(message)):
            run(create.format(options))
    output = run(
        create.format("'bucket' = '1'")
        + "ALTER TABLE t SET ('changelog-producer.lookup-wait' = 'false');"
    )
    assert output.notices == [
        "table default.t: option 'changelog-producer.lookup-wait' (Paimon 0.8 and before) is "
        "now 'lookup-wait'",
    ]


def test_an_insert_that_a_later_deletion_hides_says_so(run: Run) -> None:
    run("CREATE TABLE t (id INT, v INT, s INT, PRIMARY KEY (id) NOT ENFORCED) "
        "WITH ('bucket' = '1', 'sequence.field' = 's');"
        "INSERT INTO t VALUES (1, 1, 10), (2, 2, 10); DELETE FROM t WHERE id = 1;")  # fmt: skip
    output = run(
        BATCH + "INSERT INTO t SELECT * FROM (VALUES (1, 5, 3), (3, 3, 1)) AS x (id, v, s);"
    )
    assert output.notices == [
        "t: 2 rows written; 1 cannot be seen: a record with a greater 'sequence.field' has "
        "deleted the key"
    ]
    output = run("INSERT INTO t VALUES (1, 5, 4), (4, 4, 1);")
    assert "1 cannot be seen" in output.notices[0]
    assert run("INSERT INTO t VALUES (1, 6, 11);").notices == ["t: 1 row written"]
