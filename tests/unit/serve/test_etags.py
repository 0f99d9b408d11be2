"""The ETag of a view changes with its rows, and with nothing else."""

from __future__ import annotations

import itertools
import json
import random
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from streamhouse.paimon.catalog.views import Views
from streamhouse.serve.queries import view_rows
from streamhouse.sql.plan import BoundedQuery, Column, ViewInfo

COLUMNS = (
    Column("id", "INT"), Column("d", "DOUBLE"), Column("s", "STRING"), Column("row", "ROW<x INT>"),
    Column("lists", "ARRAY<ARRAY<STRING>>"), Column("price", "DECIMAL(10, 2)"),
)  # fmt: skip
VALUES: tuple[tuple[Any, ...], ...] = (
    (0.0, -0.0, float("nan"), float("inf"), None),
    ("", "NULL", "null", "a, b", "'a'", "[x]", "\\", None),
    ({"x": 1}, {"x": None}, None),
    ([["a"], ["b"]], [["a", "b"]], [["a, b"]], [[]], [], [None], [["NULL"]], [[None]], None),
    (Decimal("1.00"), Decimal("0.00"), None),
)
STEPS = 8
PATHS = ("", "?columns=id,s&limit=2", "?format=csv")


def changed(shop: Any, table: str, generated: random.Random) -> None:
    """A commit: often without a change to any row, or to the rows of the SQL view."""
    row = (generated.randrange(3), *(generated.choice(values) for values in VALUES))
    match generated.choice(["write", "write", "write", "again", "delete"]):
        case "again":
            batches = shop.warehouse.table(table).read()
            if rows := [tuple(row.values()) for batch in batches for row in batch.to_pylist()]:
                shop.write(table, *rows)
        case "delete":
            shop.write(table, row, kinds=["-D"])
        case _:
            shop.write(table, row)


def test_different_rows_have_different_hashes() -> None:
    rows = list(itertools.product(*VALUES))
    arrays = [pa.array(values) for values in zip(*rows, strict=True)]
    odd = pa.table([*arrays, arrays[0]], [*(column.name for column in COLUMNS[1:]), "ROW_"])
    connection = duckdb.connect()
    connection.register("odd", odd)
    hashed = view_rows._with_hashes(BoundedQuery((), "SELECT * FROM odd", tuple(odd.schema.names)))
    reader = connection.sql(hashed.sql).to_arrow_reader()
    hashes = [number for batch in reader for number in batch.column(-1).to_pylist()]
    assert len(set(hashes)) == len(hashes) == len(rows)


@pytest.mark.parametrize("seed", [248])
def test_equal_rows_have_equal_etags(serve: Any, shop: Any, seed: int) -> None:
    generated = random.Random(seed)
    table = shop.create("t", COLUMNS, ["id"])
    text = "SELECT lists, `row`, COUNT(*) AS n FROM shop.t WHERE id < 2 GROUP BY lists, `row`"
    columns = (COLUMNS[4], COLUMNS[3], Column("n", "BIGINT"))
    Views(shop.warehouse).create(ViewInfo(("shop", "v"), columns, text))
    server = serve()
    paths = [*(f"/views/{table}{path}" for path in PATHS), "/views/shop.v"]
    tags: dict[str, dict[str, str]] = {path: {} for path in paths}
    last: dict[str, str] = {}
    for _ in range(STEPS):
        changed(shop, table, generated)
        for path in paths:
            answer = server.http.get(path)
            body, tag = answer.text, answer.headers["etag"]
            rows = (
                body
                if "csv" in path
                else "".join(sorted(map(json.dumps, json.loads(body)["rows"])))
            )
            assert tags[path].setdefault(rows, tag) == tag, path
            again = server.http.get(path, headers={"If-None-Match": last.get(path, tag)})
            assert (again.status_code == 304) == (last.get(path, tag) == tag)
            assert (
                again.headers["X-Streamhouse-Snapshot"] == answer.headers["X-Streamhouse-Snapshot"]
            )
            last[path] = tag
    every = [tag for known in tags.values() for tag in known.values()]
    assert len(set(every)) == len(every) >= STEPS
