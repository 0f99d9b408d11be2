"""Sets of primary keys, of one column and of several, of every type that a key can have."""

from __future__ import annotations

import datetime
import itertools
import random
from decimal import Decimal

import pyarrow as pa
import pytest

from streamhouse.paimon.read.key_set import KeySet

INSTANT = datetime.datetime(2026, 6, 1, 12, 30, 15, 250_000)
VALUES: list[tuple[pa.DataType, list[object]]] = [
    (pa.bool_(), [True, False]),
    (pa.int8(), [-128, 0, 127]),
    (pa.int64(), [-(2**63), 0, 2**63 - 1]),
    (pa.float32(), [0.0, -0.0, float("nan"), float("inf"), 1.5]),
    (pa.float64(), [0.0, -0.0, float("nan"), float("-inf"), 1.5]),
    (pa.decimal128(38, 2), [Decimal("0.01"), Decimal(10**35)]),
    (pa.string(), ["", "a", "A", "ä", "a\0"]),
    (pa.binary(), [b"", b"\0", b"\0\0"]),
    (pa.date32(), [INSTANT.date(), datetime.date(1, 1, 1)]),
    (pa.time32("ms"), [INSTANT.time(), datetime.time()]),
    (pa.timestamp("us"), [INSTANT, INSTANT + datetime.timedelta(microseconds=1)]),
    (pa.timestamp("ms", tz="UTC"), [INSTANT, INSTANT + datetime.timedelta(milliseconds=1)]),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=lambda one: str(one)[:20])
def test_each_value_is_a_key_of_its_own(kind: pa.DataType, values: list[object]) -> None:
    rows = pa.table({"k": pa.array(values, kind)})
    for place in range(len(values)):
        found = KeySet(rows.slice(place, 1)).mask(rows)
        assert found.tolist() == [number == place for number in range(len(values))]


def test_keys_of_several_columns_are_distinguished() -> None:
    every = list(itertools.product(range(6), "abcde", (b"x", b"y", b"z"), (True, False)))
    chance = random.Random(1)
    chance.shuffle(every)
    schema = pa.schema(
        [("a", pa.int32()), ("b", pa.string()), ("c", pa.binary()), ("d", pa.bool_())]
    )

    def table(rows: list[tuple[int, str, bytes, bool]]) -> pa.Table:
        named = [dict(zip(schema.names, row, strict=True)) for row in rows]
        return pa.Table.from_pylist(named, schema)

    known = every[:40]
    keys = KeySet(table([*known, *known[:5]]))
    assert len(keys) == 40
    rows = table(every).append_column("v", pa.nulls(len(every), pa.int8()))
    assert keys.mask(rows).tolist() == [one in set(known) for one in every]


def test_of_no_keys_none_is_found() -> None:
    rows = pa.table({"a": [1, 2], "b": ["x", "y"]})
    assert KeySet(rows.slice(0, 0)).mask(rows).tolist() == [False, False]
    assert KeySet(rows).mask(rows.slice(0, 0)).tolist() == []
