"""The computed changes between two states turn the one into the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamhouse.paimon.changelog.differences.state_difference import Differ

SCHEMA = pa.schema([("a", pa.int32()), ("A", pa.string()), ("v w", pa.list_(pa.float64()))])
Row = tuple[Any, ...]

keys = st.tuples(st.integers(0, 3), st.sampled_from(["x", "y", "'\"é"]))
values = st.none() | st.lists(st.none() | st.floats(allow_nan=False), max_size=2)
states = st.dictionaries(keys, values, max_size=8)
rows = st.lists(st.tuples(st.none() | st.integers(0, 2), st.sampled_from(["x", None]), values))


@pytest.fixture(scope="module")
def differ() -> Iterator[Differ]:
    differ = Differ()
    yield differ
    differ.close()


def as_table(rows: list[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def changes(table: pa.Table) -> list[Row]:
    columns = [table.column(i).to_pylist() for i in range(table.num_columns)]
    return list(zip(*columns, strict=True))


@settings(max_examples=60)
@given(old=states, new=states)
def test_changes_by_key(differ: Differ, old: dict[Row, Any], new: dict[Row, Any]) -> None:
    before, after = (as_table([(*key, value) for key, value in s.items()]) for s in (old, new))
    found = changes(differ.by_key(before, after, ["a", "A"]))
    state = dict(old)
    for kind, *key, value in found:
        at = tuple(key)
        if kind in ("-U", "-D"):
            assert state.pop(at) == value
        else:
            assert at not in state
            state[at] = value
    assert state == new
    unchanged = sum(1 for key in old if key in new and old[key] == new[key])
    updates = sum(1 for kind, *_ in found if kind == "+U")
    assert len(found) == len(old) + len(new) - 2 * unchanged
    assert updates == len(old.keys() & new.keys()) - unchanged


@settings(max_examples=60)
@given(old=rows, new=rows)
def test_changes_by_row(differ: Differ, old: list[Row], new: list[Row]) -> None:
    def counted(some: list[Row]) -> Counter[str]:
        return Counter(map(repr, some))

    found = changes(differ.by_row(as_table(old), as_table(new)))
    gone = counted([tuple(row) for kind, *row in found if kind == "-D"])
    inserted = counted([tuple(row) for kind, *row in found if kind == "+I"])
    assert gone == counted(old) - counted(new)
    assert inserted == counted(new) - counted(old)


def test_types_come_back_as_they_were(differ: Differ) -> None:
    schema = pa.schema(
        [
            ("k", pa.int8()),
            ("t", pa.timestamp("ns")),
            ("d", pa.decimal128(38, 10)),
            ("b", pa.binary()),
            ("m", pa.map_(pa.string(), pa.int32())),
        ]
    )
    one = pa.Table.from_pylist([{"k": 1, "t": 1, "d": None, "b": b"\0", "m": [("a", 1)]}], schema)
    two = pa.Table.from_pylist([{"k": 1, "t": 2, "d": None, "b": b"\0", "m": [("a", 1)]}], schema)
    found = differ.by_key(one, two, ["k"])
    assert found.remove_column(0).schema == schema
    assert found.column("rowkind").to_pylist() == ["-U", "+U"]
    assert found.column("t").cast(pa.int64()).to_pylist() == [1, 2]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_the_zeros_of_either_sign_are_two_keys_as_in_paimon(
    differ: Differ, kind: pa.DataType
) -> None:
    schema = pa.schema([("k", kind), ("v", pa.int32())])

    def table(*rows: tuple[float, int]) -> pa.Table:
        return pa.Table.from_pylist([{"k": k, "v": v} for k, v in rows], schema=schema)

    def found(old: pa.Table, new: pa.Table) -> list[tuple[str, str, int]]:
        return [(kind, repr(k), v) for kind, k, v in changes(differ.by_key(old, new, ["k"]))]

    one, both = table((0.0, 1)), table((-1.5, 0), (0.0, 1), (-0.0, 2))
    assert found(one, both) == [("+I", "-1.5", 0), ("+I", "-0.0", 2)]
    assert found(both, table((-0.0, 3))) == [
        ("-D", "-1.5", 0), ("-U", "-0.0", 2), ("+U", "-0.0", 3), ("-D", "0.0", 1),
    ]  # fmt: skip
    renewed = differ.renewed(one, both, ["k"], always=table((-0.0, 9)))
    assert [row[2] for row in changes(renewed)] == [0, 2]
