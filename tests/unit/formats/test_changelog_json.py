"""Records of Debezium and Canal to rows with their kinds, and back."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.errors import OptionError
from streamhouse.formats.base import Decoded, FormatChoice

SCHEMA = pa.schema([("id", pa.int64()), ("price", pa.decimal128(20, 2))])


def decoded(form: str, *records: Any, **options: str) -> Decoded:
    spelled = {key.replace("_", "-"): value for key, value in options.items()}
    raw = [
        record if isinstance(record, bytes | None) else json.dumps(record).encode()
        for record in records
    ]
    return FormatChoice(form, spelled, f"{form}.").decoder(SCHEMA).decode(raw)


def rows(found: Decoded) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in found.rows.to_pylist()]


BEFORE, AFTER = {"id": 1, "price": 1.5}, {"id": 1, "price": "2.50"}


def test_debezium() -> None:
    found = decoded(
        "debezium-json",
        {"before": None, "after": BEFORE, "op": "c"},
        {"before": BEFORE, "after": AFTER, "op": "u"},
        {"before": AFTER, "after": None, "op": "d"},
        None,
        b'{"op":"r","after":{"id":9007199254740993,"price":123456789012345678.25,"x":1}}',
    )
    assert not found.bad
    assert rows(found) == [
        (1, Decimal("1.50"), "+I"),
        (1, Decimal("1.50"), "-U"),
        (1, Decimal("2.50"), "+U"),
        (1, Decimal("2.50"), "-D"),
        (9007199254740993, Decimal("123456789012345678.25"), "+I"),
    ]
    assert found.records is not None and found.records.tolist() == [0, 1, 1, 2, 4]


def test_debezium_with_schema() -> None:
    record = {"schema": {}, "payload": {"after": BEFORE, "op": "c"}}
    found = decoded("debezium-json", record, schema_include="true")
    assert rows(found) == [(1, Decimal("1.50"), "+I")]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"op": "x"}, "'op' is 'x', not one of c, r, u, d"),
        ({"op": "c"}, "'after' is missing, which 'op' = 'c' needs"),
        ({"op": "u", "after": AFTER}, "let the database log whole rows"),
        ([1], "found list instead"),
        ({"op": "c", "after": {"id": "x"}}, "column 'id': \"x\" is not of type BIGINT"),
    ],
)
def test_bad_records_of_debezium(record: Any, reason: str) -> None:
    found = decoded("debezium-json", record, {"op": "c", "after": BEFORE})
    assert reason in found.bad[0].reason
    assert len(rows(found)) == 1


def test_empty_messages_are_skipped() -> None:
    for form, record in (
        ("debezium-json", {"op": "c", "after": BEFORE}),
        ("canal-json", {"type": "INSERT", "data": [BEFORE]}),
    ):
        found = decoded(form, b"", record, None, b"")
        assert not found.bad
        assert rows(found) == [(1, Decimal("1.50"), "+I")]
        assert found.records is not None and found.records.tolist() == [1]


def test_operations_of_debezium_are_skipped_by_option() -> None:
    records = [{"op": "t"}, {"op": "m", "message": {}}, {"op": "c", "after": BEFORE}]
    found = decoded("debezium-json", *records)
    assert ["TRUNCATE" in bad.reason for bad in found.bad] == [True, False]
    assert "logical decoding message" in found.bad[1].reason
    assert [
        bad.index for bad in decoded("debezium-json", *records, skipped_operations="m").bad
    ] == [0]
    found = decoded("debezium-json", *records, skipped_operations="t, m")
    assert not found.bad and len(rows(found)) == 1
    with pytest.raises(OptionError, match="skipped-operations.*'d'"):
        decoded("debezium-json", skipped_operations="t,d")


def test_canal() -> None:
    found = decoded(
        "canal-json",
        {"data": [BEFORE, {"id": "2", "price": None}], "type": "INSERT"},
        {"data": [AFTER], "old": [{"price": "1.5"}], "type": "UPDATE"},
        {"data": [AFTER], "type": "DELETE"},
        {"data": None, "type": "ALTER", "isDdl": True},
    )
    assert not found.bad
    assert rows(found) == [
        (1, Decimal("1.50"), "+I"),
        (2, None, "+I"),
        (1, Decimal("1.50"), "-U"),
        (1, Decimal("2.50"), "+U"),
        (1, Decimal("2.50"), "-D"),
    ]


def test_canal_reads_only_the_tables_that_are_requested() -> None:
    one = {"data": [BEFORE], "type": "INSERT", "database": "shop", "table": "orders"}
    other = {**one, "table": "customers"}
    found = decoded("canal-json", one, other, **{"table.include": "ord.*"})
    assert found.records is not None and found.records.tolist() == [0]
    with pytest.raises(OptionError, match="'canal-json.table.include': '\\('"):
        decoded("canal-json", one, **{"table.include": "("})


@pytest.mark.parametrize("form", ["debezium-json", "canal-json"])
def test_written_changes_are_read_as_they_were(form: str) -> None:
    batch = pa.record_batch(
        {
            "id": pa.array([1, 1, 2, 3], pa.int64()),
            "price": pa.array([Decimal("1.50"), Decimal("2.50"), None, None], SCHEMA.field(1).type),
            "rowkind": pa.array(["-U", "+U", "-D", "+I"]),
        }
    )
    records = FormatChoice(form, {}, f"{form}.").encoder(SCHEMA).encode(batch).to_pylist()
    found = decoded(form, *records)
    kinds = [row[-1] for row in rows(found)]
    assert kinds == ["-D", "+I", "-D", "+I"]
    assert found.rows.select(["id", "price"]).equals(batch.select(["id", "price"]))
