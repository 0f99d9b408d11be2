"""MERGE, UPDATE, DELETE, TRUNCATE and INSERT OVERWRITE on tables that need no compaction."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.errors import SqlError, StreamhouseError, TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.runtime.run_output import RunOutput
from streamhouse.runtime.script import ScriptOptions, ScriptRunner
from streamhouse.sql.statements.script import parse_script

Rows = list[tuple[Any, ...]]


class CollectedOutput(RunOutput):
    """An output that keeps the notices."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def rows(self, reader: pa.RecordBatchReader) -> None:
        raise AssertionError("nothing is selected here")

    def changes(self, batch: pa.RecordBatch) -> None:
        raise AssertionError("nothing is selected here")


class Lab:
    """One warehouse and scripts over it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, text: str) -> list[str]:
        kept = CollectedOutput()
        ScriptRunner(ScriptOptions("s.sql", {"warehouse": str(self.folder)}), kept).run(
            parse_script(text)
        )
        return kept.notices

    def table(self, name: str) -> Table:
        return Warehouse(str(self.folder)).table(f"default.{name}")

    def rows(self, name: str) -> Rows:
        read = self.table(name).read()
        return sorted((tuple(r.values()) for b in read for r in b.to_pylist()), key=repr)

    def changelog(self, name: str) -> Rows:
        """The newest snapshot's changes: kind, then columns."""
        table = self.table(name)
        latest = table.latest_snapshot_id() or 0
        splits = table.changes(latest - 1, latest, "changelog")
        read = table.read(splits=splits, row_kind=True)
        return [(r.pop("rowkind"), *r.values()) for b in read for r in b.to_pylist()]

    def files(self, name: str) -> set[str]:
        root = self.folder / "default.db" / name
        return {str(path) for path in root.rglob("*") if "bucket-" in str(path.parent)}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


PEOPLE = """
CREATE TABLE people (id INT PRIMARY KEY NOT ENFORCED, name STRING, n BIGINT)
  WITH ('bucket' = '1', 'changelog-producer' = 'input');
INSERT INTO people VALUES (1, 'Ann', 1), (2, 'Ben', 2), (3, 'Cid', CAST(NULL AS BIGINT));
"""
NEWS = """
CREATE TABLE news (id INT, name STRING, n BIGINT) WITH ('bucket' = '-1');
INSERT INTO news VALUES (1, 'Anna', 10), (2, 'Bob', 20), (9, 'Zoe', 90);
"""


def test_merge_with_all_clauses_is_one_snapshot_of_row_kinds(lab: Lab) -> None:
    lab(PEOPLE + NEWS)
    before = lab.table("people").latest_snapshot_id() or 0
    notices = lab("""
        MERGE INTO people AS t USING news AS s ON t.id = s.id
        WHEN MATCHED AND s.n > 15 THEN DELETE
        WHEN MATCHED THEN UPDATE SET name = s.name, n = t.n + s.n
        WHEN NOT MATCHED BY TARGET AND s.id > 100 THEN INSERT *
        WHEN NOT MATCHED THEN INSERT (name, id) VALUES (UPPER(name), id)
        WHEN NOT MATCHED BY SOURCE AND t.n IS NULL THEN UPDATE SET n = 0;""")
    assert notices == ["people: 1 inserted, 2 updated, 1 deleted"]
    assert lab.rows("people") == [(1, "Anna", 11), (3, "Cid", 0), (9, "ZOE", None)]
    assert lab.table("people").latest_snapshot_id() == before + 1
    assert sorted(lab.changelog("people"), key=repr) == sorted(
        [
            ("-U", 1, "Ann", 1),
            ("+U", 1, "Anna", 11),
            ("-D", 2, "Ben", 2),
            ("-U", 3, "Cid", None),
            ("+U", 3, "Cid", 0),
            ("+I", 9, "ZOE", None),
        ],
        key=repr,
    )


def test_merge_stars_and_a_subquery_over_the_target_itself(lab: Lab) -> None:
    lab(PEOPLE + NEWS)
    notices = lab("""
        MERGE INTO people USING (SELECT id, name, n FROM news UNION ALL
                                 SELECT 7, MAX(name), COUNT(*) FROM people) AS s
        ON people.id = s.id
        WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *;""")
    assert notices == ["people: 2 inserted, 2 updated"]
    assert lab.rows("people") == [
        (1, "Anna", 10), (2, "Bob", 20), (3, "Cid", None), (7, "Cid", 3), (9, "Zoe", 90)
    ]  # fmt: skip


def test_update_and_delete(lab: Lab) -> None:
    lab(PEOPLE + NEWS)
    notices = lab("""
        UPDATE people AS p SET n = CASE WHEN p.n > 1 THEN 100 ELSE (SELECT MIN(n) FROM news) END,
          name = name || '!' WHERE EXISTS (SELECT 1 FROM news WHERE news.id = p.id);
        DELETE FROM people WHERE n IS NULL OR id NOT IN (SELECT id FROM news);
        DELETE FROM people WHERE id = 77;""")
    assert notices == ["people: 2 updated", "people: 1 deleted", "people: nothing to change"]
    assert lab.rows("people") == [(1, "Ann!", 10), (2, "Ben!", 100)]
    assert lab("DELETE FROM people") == ["people: 2 deleted"]
    assert lab.rows("people") == []
    assert lab("UPDATE people SET n = 1; MERGE INTO people USING news ON FALSE "
               "WHEN NOT MATCHED THEN INSERT *;") == [
        "people: nothing to change", "people: 3 inserted"
    ]  # fmt: skip


def test_an_append_table_is_rewritten(lab: Lab) -> None:
    lab(NEWS + "INSERT INTO news VALUES (1, 'Anna', 10), (5, 'Eve', 1);")
    assert lab("DELETE FROM news WHERE n = 1") == [
        "news: 1 deleted (all files of the table were rewritten)"
    ]
    snapshot = lab.table("news").snapshot(lab.table("news").latest_snapshot_id() or 0)
    assert snapshot.commit_kind == "OVERWRITE"
    lab("UPDATE news SET n = n + 1 WHERE id = 1")
    assert lab.rows("news") == [(1, "Anna", 11), (1, "Anna", 11), (2, "Bob", 20), (9, "Zoe", 90)]
    source = "(SELECT 1 AS id, 1 AS k UNION ALL SELECT 1, 2 UNION ALL SELECT 4, 3) AS s"
    lab(f"""MERGE INTO news USING {source} ON news.id = s.id
        WHEN MATCHED AND s.k = 2 THEN UPDATE SET n = 0
        WHEN NOT MATCHED THEN INSERT (id, n) VALUES (id, k)
        WHEN NOT MATCHED BY SOURCE AND name = 'Bob' THEN DELETE;""")
    assert lab.rows("news") == [(1, "Anna", 0), (1, "Anna", 0), (4, None, 3), (9, "Zoe", 90)]
    lab("DELETE FROM news; MERGE INTO news USING people ON FALSE WHEN NOT MATCHED THEN INSERT *"
        .replace("people", "(SELECT 1 AS id, 'x' AS name, 2 AS n) AS p"))  # fmt: skip
    assert lab.rows("news") == [(1, "x", 2)]


def test_a_row_that_several_source_rows_match_is_an_error(lab: Lab) -> None:
    lab(PEOPLE)
    files = lab.files("people")
    twice = "(SELECT 1 AS id, 'a' AS name UNION ALL SELECT 1, 'b') AS s"
    with pytest.raises(TableError, match=r"several rows of the source match the row \(id = 1\)"):
        lab(f"MERGE INTO people USING {twice} ON people.id = s.id WHEN MATCHED THEN DELETE")
    twice = twice.replace("1", "8")
    with pytest.raises(TableError, match=r"inserted with the primary key \(id = 8\)"):
        lab(f"MERGE INTO people USING {twice} ON people.id = s.id "
            "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (id, name)")  # fmt: skip
    # One of the two rows that match is picked by the clause: that is no mistake.
    lab(f"MERGE INTO people USING {twice.replace('8', '1')} ON people.id = s.id "
        "WHEN MATCHED AND s.name = 'b' THEN UPDATE SET name = s.name")  # fmt: skip
    assert lab.rows("people")[0] == (1, "b", 1)
    assert len(lab.files("people") - files) == 2, "the failed statements left no files"
    assert not list((lab.folder / "default.db/people/.changes").iterdir())


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("UPDATE people SET id = 4", SqlError, "column 19: 'id' is a primary key column"),
        ("UPDATE people SET nam = 'x'", SqlError, "no column 'nam'; did you mean 'name'"),
        ("UPDATE people SET name = nam", SqlError, "column 26: there is no column 'nam'"),
        ("UPDATE people SET n = 1, n = 2", SqlError, "column 26: column 'n' is set twice"),
        ("UPDATE people SET n = 'x'", SqlError, "column 23: column 'n' is BIGINT, but"),
        ("UPDATE people SET n = SUM(n)", SqlError, "write the aggregate as a subquery"),
        ("UPDATE people SET n = 1 / 0", StreamhouseError, "Division by zero"),
        ("DELETE FROM people WHERE n", SqlError, "column 26: a condition must be BOOLEAN"),
        ("DELETE people", SqlError, "expected FROM, got people"),
        ("DELETE FROM nosuch", TableError, "column 1: there is no table 'nosuch'"),
        ("DELETE FROM `people$snapshots`", SqlError, "people$snapshots is a branch"),
        ("TRUNCATE TABLE nosuch", TableError, "there is no table 'nosuch'"),
        ("MERGE INTO people USING people ON TRUE WHEN MATCHED THEN DELETE", SqlError,
         "target and source are both named 'people'"),
        ("MERGE INTO people USING (SELECT 1) ON TRUE WHEN MATCHED THEN DELETE", SqlError,
         "give the source a name"),
        ("MERGE INTO people USING news ON TRUE", SqlError, "expected WHEN MATCHED"),
        ("MERGE INTO people USING news ON TRUE WHEN MATCHED THEN INSERT *", SqlError,
         "expected UPDATE or DELETE after WHEN MATCHED … THEN, got INSERT"),
        ("MERGE INTO people USING news ON TRUE WHEN NOT MATCHED THEN DELETE", SqlError,
         "expected INSERT after WHEN NOT MATCHED … THEN, got DELETE"),
        ("MERGE INTO people USING news ON TRUE WHEN MATCHED THEN DELETE WHEN MATCHED THEN DELETE",
         SqlError, "column 63: this clause is never reached"),
        ("MERGE INTO people USING news ON TRUE WHEN NOT MATCHED THEN INSERT (id) "
         "VALUES (people.id)", SqlError, "has no row of 'people'; use 'news'"),
        ("MERGE INTO people USING news ON TRUE WHEN NOT MATCHED BY SOURCE THEN UPDATE SET "
         "n = news.n", SqlError, "has no row of 'news'; use 'people'"),
        ("MERGE INTO people USING news ON TRUE WHEN NOT MATCHED THEN INSERT (n) VALUES (1)",
         SqlError, "no value for primary key column 'id'"),
        ("MERGE INTO people USING news ON TRUE WHEN NOT MATCHED THEN INSERT VALUES (1)",
         SqlError, "has 3 columns: id, name, n"),
        ("MERGE INTO people USING news ON TRUE WHEN NOT MATCHED THEN INSERT (id) VALUES (1, 2)",
         SqlError, "1 column(s) are named, but 2 value(s) are given"),
        ("MERGE INTO people USING news ON id = 1 WHEN MATCHED THEN DELETE", SqlError,
         "column 'id' is ambiguous; write people.id or news.id"),
    ],
)  # fmt: skip
def test_mistakes_have_their_place(
    lab: Lab, text: str, kind: type[StreamhouseError], message: str
) -> None:
    lab(PEOPLE + NEWS)
    before = lab.rows("people")
    with pytest.raises(kind, match=r"line 2, column \d+: ") as caught:
        lab("-- a comment\n" + text)
    assert message in str(caught.value)
    assert lab.rows("people") == before


@pytest.mark.parametrize(
    ("options", "text", "message"),
    [
        ("'merge-engine' = 'first-row'", "DELETE FROM t", "only INSERT clauses"),
        ("'merge-engine' = 'partial-update'", "DELETE FROM t", "partial-update.remove-record"),
        ("'merge-engine' = 'partial-update'", "UPDATE t SET v = CAST(NULL AS INT)", "ignores"),
        ("'ignore-delete' = 'true'", "DELETE FROM t", "set 'ignore-delete' = 'false'"),
        ("'sequence.field' = 'v'", "UPDATE t SET v = 0", "cannot make it less"),
        ("'merge-engine' = 'aggregation', 'fields.v.aggregate-function' = 'max'",
         "UPDATE t SET v = 0", "'v' is merged by max"),
        ("'merge-engine' = 'aggregation', 'fields.v.aggregate-function' = 'max'",
         "DELETE FROM t", "'aggregation.remove-record-on-delete' = 'true'"),
        ("'merge-engine' = 'aggregation', 'fields.v.aggregate-function' = 'sum'",
         "UPDATE t SET v = CAST(NULL AS INT)", "sum ignores nulls"),
        ("'merge-engine' = 'aggregation'", "UPDATE t SET v = CAST(NULL AS INT)",
         "last_non_null_value ignores nulls"),
    ],
)  # fmt: skip
def test_tables_that_cannot_take_a_change_say_why(
    lab: Lab, options: str, text: str, message: str
) -> None:
    lab("CREATE TABLE t (id INT PRIMARY KEY NOT ENFORCED, v INT) "
        f"WITH ('bucket' = '1', {options}); INSERT INTO t VALUES (1, 5);")  # fmt: skip
    before = lab.table("t").latest_snapshot_id()
    with pytest.raises(TableError, match="line 1, column 1: ") as caught:
        lab(text)
    assert message in str(caught.value)
    assert lab.table("t").latest_snapshot_id() == before


def test_update_replaces_sums_and_later_rows_add_to_them(lab: Lab) -> None:
    lab("""CREATE TABLE t (k STRING PRIMARY KEY NOT ENFORCED, n BIGINT, d DOUBLE, s STRING) WITH (
          'bucket' = '1', 'merge-engine' = 'aggregation', 'changelog-producer' = 'input',
          'fields.n.aggregate-function' = 'sum', 'fields.d.aggregate-function' = 'sum');
        INSERT INTO t VALUES ('a', 1, 1.5, 'x'), ('b', 1, 1, 'y');
        INSERT INTO t VALUES ('a', 2, 1.5, 'z');
        UPDATE t SET n = 100, d = d * 2, s = UPPER(s) WHERE k = 'a';""")
    assert lab.rows("t") == [("a", 100, 6.0, "Z"), ("b", 1, 1.0, "y")]
    assert lab.changelog("t") == [("-U", "a", 3, 3.0, "z"), ("+U", "a", 100, 6.0, "Z")]
    lab("INSERT INTO t VALUES ('a', 1, 1, 'w')")
    assert lab.rows("t")[0] == ("a", 101, 7.0, "w")


def test_partial_update(lab: Lab) -> None:
    lab("""CREATE TABLE t (k STRING PRIMARY KEY NOT ENFORCED, a INT, b INT) WITH (
          'bucket' = '1', 'merge-engine' = 'partial-update');
        INSERT INTO t (k, a) VALUES ('x', 1); INSERT INTO t (k, b) VALUES ('x', 2);
        UPDATE t SET a = a + b;""")
    assert lab.rows("t") == [("x", 3, 2)]


DAYS = """
CREATE TABLE days (day_ DATE, k INT, v INT) PARTITIONED BY (day_, k) WITH ('bucket' = '-1'{more});
INSERT INTO days VALUES (DATE '2024-01-01', 1, 10), (DATE '2024-01-01', 2, 20),
  (DATE '2024-01-02', 1, 30);
"""
DAY_1, DAY_2 = datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)


def test_insert_overwrite_of_partitions(lab: Lab) -> None:
    lab(DAYS.format(more=""))
    lab("INSERT OVERWRITE days PARTITION (day_ = '2024-01-01', k = 1) VALUES (11), (12)")
    assert lab.rows("days") == [
        (DAY_1, 1, 11), (DAY_1, 1, 12), (DAY_1, 2, 20), (DAY_2, 1, 30)
    ]  # fmt: skip
    lab("INSERT OVERWRITE days VALUES (DATE '2024-01-01', 1, 13)")
    assert lab.rows("days") == [(DAY_1, 1, 13), (DAY_1, 2, 20), (DAY_2, 1, 30)]
    # Only the partitions written to, unless the table says that PARTITION says it all.
    overwrite = "INSERT OVERWRITE days {hint} PARTITION (day_ = '2024-01-01') (v, k) VALUES (5, 3)"
    lab(overwrite.format(hint=""))
    assert len(lab.rows("days")) == 4
    lab(overwrite.format(hint="/*+ OPTIONS('dynamic-partition-overwrite' = 'false') */"))
    assert lab.rows("days") == [(DAY_1, 3, 5), (DAY_2, 1, 30)]
    batch = "SET 'execution.runtime-mode' = 'batch';"
    lab(batch + "INSERT OVERWRITE days PARTITION (day_ = '2024-01-02', k = 1) "
        "SELECT v FROM days WHERE FALSE")  # fmt: skip
    assert lab.rows("days") == [(DAY_1, 3, 5)]
    lab(batch + "INSERT OVERWRITE days SELECT day_, k, v + 1 FROM days")
    assert lab.rows("days") == [(DAY_1, 3, 6)]
    lab("INSERT INTO days PARTITION (day_ = '2024-01-02') VALUES (7, 8); TRUNCATE TABLE days;")
    assert lab.rows("days") == []


def test_a_table_may_say_that_an_overwrite_replaces_all_partitions(lab: Lab) -> None:
    lab(DAYS.format(more=", 'dynamic-partition-overwrite' = 'false'"))
    lab("INSERT OVERWRITE days VALUES (DATE '2024-01-01', 1, 13)")
    assert lab.rows("days") == [(DAY_1, 1, 13)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("INSERT OVERWRITE days PARTITION (dey = 1) VALUES (1)", "did you mean 'day_'"),
        ("INSERT OVERWRITE people PARTITION (n = 1) VALUES (1)", "is not partitioned"),
        (
            "INSERT INTO days PARTITION (day_ = 'x') VALUES (1, 2)",
            "not a value of partition column",
        ),
        ("INSERT INTO days PARTITION (day_) VALUES (1, 2)", "expected a value"),
        ("INSERT INTO days PARTITION (k = 1) (k, v) VALUES (1, 2)", "also in the column list"),
        ("INSERT INTO days PARTITION (k = 1) SELECT day_, v FROM days", "feed itself"),
    ],
)
def test_partitions_that_cannot_be(lab: Lab, text: str, message: str) -> None:
    lab(DAYS.format(more="") + PEOPLE)
    with pytest.raises(StreamhouseError, match=r"line 1, column \d+: ") as caught:
        lab(text)
    assert message in str(caught.value)
