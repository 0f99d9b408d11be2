"""CREATE and ALTER refuse bucket options that the Java core refuses or that would double keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pypaimon import CatalogFactory, Schema

from streamhouse.errors import OptionError, StreamhouseError, TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.schema.validation.declared_schema import DeclaredSchema
from streamhouse.paimon.schema.validation.schema_validation import check_schema
from streamhouse.runtime.execute import execute

COLUMNS = {"k": "INT", "p": "INT", "s": "STRING", "a": "ARRAY<INT>"}
TABLE = "CREATE TABLE d.t (k INT, p INT, v INT, PRIMARY KEY ({}) NOT ENFORCED) {} WITH ({})"


@pytest.fixture
def lake(tmp_path: Path) -> str:
    execute(str(tmp_path), "CREATE DATABASE d")
    return str(tmp_path)


def rows(lake: str, name: str = "t") -> list[tuple[Any, ...]]:
    table = Warehouse(lake).table(f"d.{name}")
    read = table.read() if table.latest_snapshot_id() else []
    return sorted(tuple(row.values()) for batch in read for row in batch.to_pylist())


@pytest.mark.parametrize(
    ("key", "partitions", "options", "message"),
    [
        ("k", "", {"bucket": "-2"}, "'-2' .postponed buckets. is not supported"),
        ("", "", {"bucket": "-2", "bucket-key": "k"}, "'-2' .postponed"),
        ("k", "", {"bucket": "0"}, "'bucket' = '0'; write a number of buckets, 1 or more, or -1"),
        ("k", "", {"bucket": "-3"}, "'bucket' = '-3'; write a number"),
        ("k", "", {"bucket": "two"}, "'bucket' = 'two'; write a number"),
        ("k", "", {"bucket-key": "k"}, "'bucket-key' needs a fixed number of buckets"),
        ("", "", {"bucket-key": "k", "bucket": "-1"}, "needs a fixed number"),
        ("", "", {"bucket": "4"}, "without a primary key needs a 'bucket-key'"),
        ("k", "", {"bucket": "4", "bucket-key": "s"}, "which is not part of the primary key .k."),
        (
            "",
            "",
            {"bucket": "4", "bucket-key": "kk"},
            "'kk', which is not a column; did you mean 'k'",
        ),
        ("", "p", {"bucket": "4", "bucket-key": "p"}, "names the partition key 'p'"),
        ("", "", {"bucket": "4", "bucket-key": "a"}, "which is ARRAY<INT>"),
        ("p", "p", {"bucket": "4"}, "the primary key .p. is also the partition key"),
        ("k", "p", {"bucket": "4"}, "a key could have a row in each partition"),
        ("k", "p", {"sequence.field": "s"}, "Paimon then allows no 'sequence.field'"),
        ("k", "p", {"ignore-delete": "true"}, "'ignore-delete' keeps it there as well"),
        ("", "", {"full-compaction.delta-commits": "2"}, "is for tables with a primary key"),
        ("k", "", {"bucket": "4", "bucket-function.type": "md5"}, "is not one of default, mod"),
        ("s", "", {"bucket": "4", "bucket-function.type": "mod"}, "bucket key is .s STRING."),
        ("k,p", "", {"bucket": "4", "bucket-function.type": "mod"}, "one bucket key of type INT"),
    ],
)
def test_options_that_the_java_core_refuses_are_refused(
    key: str, partitions: str, options: Mapping[str, str], message: str
) -> None:
    def names(text: str) -> Sequence[str]:
        return [name for name in text.split(",") if name]

    columns = list(COLUMNS.items())
    schema = DeclaredSchema("table d.t", columns, names(key), names(partitions), options)
    with pytest.raises((OptionError, TableError), match=f"table d.t: .*{message}"):
        check_schema(schema)


def test_options_are_stored_without_blanks(lake: str) -> None:
    execute(lake, TABLE.format("k, p", "", "'bucket' = ' 4', 'bucket-key' = 'k, p '"))
    options = Warehouse(lake).table("d.t").options
    assert (options["bucket"], options["bucket-key"]) == ("4", "k,p")


def test_alter_table_checks_the_same_rules(lake: str) -> None:
    execute(lake, TABLE.format("k", "", "'bucket' = '4'"))
    for change, message in (
        ("SET ('bucket' = '-2')", "postponed buckets"),
        ("SET ('bucket' = 'two')", "'two'; write a number"),
        ("SET ('bucket-key' = 'v')", "not part of the primary key"),
        ("SET ('bucket' = '-1', 'bucket-key' = 'k')", "needs a fixed number"),
    ):
        with pytest.raises(OptionError, match=message):
            execute(lake, f"ALTER TABLE d.t {change}")
    execute(lake, "ALTER TABLE d.t SET ('bucket' = '2', 'bucket-key' = ' k')")
    options = Warehouse(lake).table("d.t").options
    assert (options["bucket"], options["bucket-key"]) == ("2", "k")


def test_tables_with_postponed_buckets_are_not_written_or_followed(lake: str) -> None:
    made = _postponed(lake)
    for statement in ("INSERT INTO d.t VALUES (1, 1, 1)", "INSERT OVERWRITE d.t VALUES (1, 1, 1)"):
        with pytest.raises(TableError, match="only Flink can write it"):
            execute(lake, statement)
    with pytest.raises(TableError, match="a stream cannot read it"):
        PaimonSource({"warehouse": lake}, "d.t")
    assert rows(lake) == [] and made.location
    execute(lake, "ALTER TABLE d.t SET ('snapshot.num-retained.min' = '3')")


def test_rows_without_a_bucket_are_reported_when_a_table_is_read(lake: str) -> None:
    table = _postponed(lake)
    builder = table.rust.new_stream_write_builder().with_commit_user("u")
    writer = builder.new_write()
    writer.write_arrow(_batch(table, [(1, 1, 1), (2, 2, 2)]))
    builder.new_commit().commit(0, writer.prepare_commit(True, 0))
    writer.close()
    with pytest.raises(TableError, match="2 rows of snapshot 1 have no bucket yet.*sys.compact"):
        rows(lake)
    execute(lake, "TRUNCATE TABLE d.t")
    assert rows(lake) == []


def _postponed(lake: str) -> Any:
    """A table as Flink makes it."""
    import pyarrow as pa

    fields = [pa.field(name, pa.int32(), nullable=name == "v") for name in ("k", "p", "v")]
    schema = Schema.from_pyarrow_schema(
        pa.schema(fields), primary_keys=["k"], options={"bucket": "-2"}
    )
    CatalogFactory.create({"warehouse": lake}).create_table("d.t", schema, False)
    return Warehouse(lake).table("d.t")


def _batch(table: Any, given: Sequence[tuple[int, ...]]) -> Any:
    import pyarrow as pa

    names = table.arrow_schema.names
    made = [dict(zip(names, one, strict=True)) for one in given]
    return pa.RecordBatch.from_pylist(made, schema=table.arrow_schema)


def test_a_changed_number_of_buckets_is_reported_as_such(lake: str) -> None:
    execute(lake, TABLE.format("k", "", "'bucket' = '4'") + "; INSERT INTO d.t VALUES (1, 1, 1)")
    from pypaimon.schema.schema_change import SchemaChange

    changes = [SchemaChange.set_option("bucket", "8")]
    CatalogFactory.create({"warehouse": lake}).alter_table("d.t", changes, False)
    with pytest.raises(StreamhouseError, match="'bucket' was changed to 8.*INSERT OVERWRITE"):
        execute(lake, "INSERT INTO d.t VALUES (2, 2, 2)")
    execute(lake, "INSERT OVERWRITE d.t SELECT k, p, v FROM d.t; INSERT INTO d.t VALUES (1, 1, 5)")
    assert rows(lake) == [(1, 1, 5)]


def test_renamed_keys_keep_their_bucket_options(lake: str) -> None:
    execute(lake, TABLE.format("k", "", "'bucket' = '4', 'bucket-key' = 'k'"))
    execute(lake, "ALTER TABLE d.t RENAME k TO id; ALTER TABLE d.t SET ('bucket' = '2')")
    options = Warehouse(lake).table("d.t").options
    assert (options["bucket"], options["bucket-key"]) == ("2", "id")


@pytest.mark.parametrize(
    ("engine", "other"),
    [
        ("aggregation", "'fields.v.ignore-retract' = 'true'"),
        ("partial-update", "'ignore-delete' = 'true'"),
        ("partial-update", "'fields.v.sequence-group' = 'p'"),
    ],
)
def test_removed_records_and_kept_parts_exclude_each_other(
    lake: str, engine: str, other: str
) -> None:
    removes = f"'{engine}.remove-record-on-delete' = 'true'"
    made = f"'merge-engine' = '{engine}', "
    with pytest.raises(OptionError, match="remove-record-on-delete' and .* exclude each other"):
        execute(lake, TABLE.format("k", "", f"{made}{removes}, {other}"))
    for first, second in ((removes, other), (other, removes)):
        execute(lake, TABLE.format("k", "", made + first))
        with pytest.raises(OptionError, match="remove-record-on-delete' and .* exclude each other"):
            execute(lake, f"ALTER TABLE d.t SET ({second})")
        execute(lake, "DROP TABLE d.t")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("'deletion-vectors.enabled' = 'true'", "'changelog-producer' = 'full-compaction'"),
        ("'deletion-vectors.enabled' = 'true'", "'merge-engine' = 'first-row'"),
        ("'merge-engine' = 'first-row'", "'changelog-producer' = 'input'"),
        ("'merge-engine' = 'first-row'", "'changelog-producer' = 'full-compaction'"),
    ],
)
def test_what_java_does_not_open_is_not_made(lake: str, one: str, other: str) -> None:
    with pytest.raises(OptionError, match=f"options {one} and {other} exclude each other"):
        execute(lake, TABLE.format("k", "", f"{other}, {one}"))
    execute(lake, TABLE.format("k", "", one))


@pytest.mark.parametrize("function", ["first_value", "first_non_null_value", "listagg"])
@pytest.mark.parametrize(
    ("engine", "order"),
    [
        ("aggregation", "'sequence.field' = 'p'"),
        ("partial-update", "'fields.p.sequence-group' = 'v'"),
    ],
)
def test_functions_that_depend_on_files_are_refused(
    lake: str, function: str, engine: str, order: str
) -> None:
    """Merged rows have the sequence of the last one, so a later row may come before them."""
    merge = f"'fields.v.aggregate-function' = '{function}'"
    with pytest.raises(OptionError, match=f"'{function}' and .* exclude each other"):
        execute(lake, TABLE.format("k", "", f"'merge-engine' = '{engine}', {merge}, {order}"))
    execute(lake, TABLE.format("k", "", f"'merge-engine' = '{engine}', {order}"))
    with pytest.raises(OptionError, match="exclude each other"):
        execute(lake, f"ALTER TABLE d.t SET ({merge})")
    execute(lake, "DROP TABLE d.t")
