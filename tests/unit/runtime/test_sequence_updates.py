"""UPDATE of columns by which a table orders the rows of a key: it takes effect or is refused."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

import streamhouse
from streamhouse.errors import TableError
from streamhouse.paimon.catalog.warehouse import Warehouse

Pair = tuple[int | None, int | None]
VALUES = (None, 1, 2)
MOVES = [*product(product(VALUES, VALUES), product(VALUES, VALUES))]
"""Before and after, of the columns `a` and `b`."""


def later(pair: Pair, descending: bool) -> tuple[tuple[bool, int], ...]:
    """A pair in the order in which rows win; a null loses against every value."""
    return tuple((one is not None, -(one or 0) if descending else one or 0) for one in pair)


def text(value: int | None) -> str:
    return f"CAST({'NULL' if value is None else value} AS INT)"


@pytest.mark.parametrize("fields", ["a", "a, b", "b,a"])
@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_an_update_takes_effect_or_is_refused(tmp_path: Path, fields: str, order: str) -> None:
    options = {"warehouse": str(tmp_path)}
    names = fields.replace(" ", "").split(",")
    rows = ", ".join(f"({i}, {text(a)}, {text(b)})" for i, ((a, b), _) in enumerate(MOVES))
    streamhouse.execute(
        options,
        f"""CREATE TABLE t (id INT, a INT, b INT, PRIMARY KEY (id) NOT ENFORCED) WITH (
          'bucket' = '1', 'sequence.field' = '{fields}', 'sequence.field.sort-order' = '{order}');
        CREATE TABLE s (id INT, a INT, b INT); INSERT INTO t VALUES {rows};""",
    )
    table = Warehouse(options).table("default.t")
    assert table.options["sequence.field"] == ",".join(names)

    def place(pair: Pair) -> tuple[tuple[bool, int], ...]:
        chosen = tuple(pair["ab".index(name)] for name in names)
        return later(chosen, order == "descending")  # type: ignore[arg-type]

    fine = [i for i, (old, new) in enumerate(MOVES) if place(new) >= place(old)]
    late = [i for i, (old, new) in enumerate(MOVES) if place(new) < place(old)]
    news = ", ".join(f"({i}, {text(MOVES[i][1][0])}, {text(MOVES[i][1][1])})" for i in fine)
    merge = "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET a = s.a, b = s.b"
    streamhouse.execute(options, f"INSERT INTO s VALUES {news}; {merge}")

    found = {row["id"]: (row["a"], row["b"]) for b in table.read() for row in b.to_pylist()}
    assert found == {i: new if i in fine else old for i, (old, new) in enumerate(MOVES)}
    assert late
    # A third of them in each test: a statement for each takes long.
    for i in late[len(fields + order) % 3 :: 3]:
        a, b = MOVES[i][1]
        with pytest.raises(TableError, match="so an UPDATE cannot make it"):
            streamhouse.execute(
                options, f"UPDATE t SET a = {text(a)}, b = {text(b)} WHERE id = {i}"
            )
