"""Rows, streams, exports and metadata of a served table have its computed columns."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.test_computed_column_places import Lab, Model
from tests.unit.serve.test_feed import taken

from streamhouse.cli.commands.watch import _open
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.serve.export_files import Extract
from streamhouse.serve.feeds.table_feed import StaticFeed
from streamhouse.serve.queries.view_details import schema, summary
from streamhouse.serve.settings import StreamSettings
from streamhouse.serve.views.served_view import ServedView
from streamhouse.thrift.source import CATALOG_VARIABLE, SERVED, ServedSource

FAST = StreamSettings(every_ms=5)
SEEDS = [*range(2), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 40))]


class Keyed(Model):
    """A table whose key is its first stored column, if `keyed`."""

    keyed = True

    def create(self) -> str:
        key = f", PRIMARY KEY ({self.stored[0]}) NOT ENFORCED) WITH ('bucket' = '1')"
        return super().create().removesuffix(")") + (key if self.keyed else ")")


def _exported(warehouse: Warehouse) -> list[list[tuple[str, Any]]]:
    with Extract(warehouse, "default.t").open(lambda rows: None) as (_, batches):
        return [list(row.items()) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_reader_of_a_served_table(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    model = Keyed(rng)
    model.keyed = bool(seed % 2)
    lab, warehouse = Lab(tmp_path), Warehouse({"warehouse": str(tmp_path)})
    stored = model.stored
    lab.run(f"{model.create()}")
    view = ServedView("default.t", "default.t")
    feed = _open("default.t", str(tmp_path), None, False, None, False)
    assert feed.schema.names == model.order and feed.poll() is None
    assert [column["name"] for column in schema(warehouse, view)["columns"]] == model.order
    assert summary(warehouse, view)["columns"] == schema(warehouse, view)["columns"]

    def insert(key: int) -> list[tuple[str, Any]]:
        values = {name: rng.randint(1, 99) for name in stored} | {stored[0]: key}
        lab.run(f"INSERT INTO t VALUES ({', '.join(map(str, values.values()))})")
        return model.row(values)

    def values(row: list[tuple[str, Any]]) -> tuple[Any, ...]:
        return tuple(value for _, value in row)

    first, second = insert(1), insert(2)
    assert taken(feed.poll()) == [("+I", *values(first)), ("+I", *values(second))]
    third = insert(2)
    rows = [first, third] if model.keyed else [first, second, third]
    changes = [("-U", *values(second)), ("+U", *values(third))]
    assert taken(feed.poll()) == (changes if model.keyed else [("+I", *values(third))])
    if model.keyed:
        assert feed.rows is not None
        assert [list(row.items()) for row in feed.rows.to_pylist()] == rows
    assert _exported(warehouse) == rows
    monkeypatch.setenv(CATALOG_VARIABLE, json.dumps({"warehouse": str(tmp_path)}))
    source = ServedSource({SERVED: "default.t"})
    assert source.schema().names == model.order
    reader = source.reader(source.schema())
    read: list[Any] = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert [list(row.items()) for batch in read for row in batch.to_pylist()] == rows
    static = StaticFeed(warehouse, "default.t", "2")
    assert taken(static.poll()) == [("+I", *values(first)), ("+I", *values(second))]
    lab.run("ALTER TABLE t ADD added INT")
    model.order.append("added")
    stored.append("added")
    fourth = insert(3)
    assert taken(feed.poll()) == [("+I", *values(fourth))]
    assert feed.schema.names == model.order
    feed.close()
    static.close()


def test_http_rows_and_stream(serve: Any, shop: Any) -> None:
    lab = Lab(shop.path)
    lab.run(
        "CREATE TABLE shop.t (id INT, half AS price / 2, parts AS ROW(id), proc AS PROCTIME(), "
        "price DECIMAL(9, 2), "
        "PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1'); "
        "INSERT INTO shop.t VALUES (1, 5.00), (2, 7.50)"
    )
    hidden = ServedView("shop.hidden", "shop.t", ("price", "id"))
    filtered = ServedView("shop.some", "shop.t", filter="half > 3")
    server = serve(views=[ServedView("shop.t", "shop.t"), hidden, filtered], streams=FAST)
    rows = server.get("/views/shop.t").json()["rows"]
    assert [list(row) for row in rows] == [["id", "half", "parts", "price"]] * 2
    assert [float(row["half"]) for row in rows] == [2.5, 3.75]
    assert [list(row["parts"].values()) for row in rows] == [[1], [2]]
    few_rows = server.get("/views/shop.t", filter="half > 3", columns="id").json()["rows"]
    assert few_rows == [{"id": 2}]
    with (
        server.stream("/views/shop.t/changes") as found,
        server.stream("/views/shop.some/changes") as few,
    ):
        first = next(found)
        assert [list(row) for row in first["rows"]] == [
            ["rowkind", "id", "half", "parts", "price"]
        ] * 2
        assert [list(row) for row in next(few)["rows"]] == [
            ["rowkind", "id", "half", "parts", "price"]
        ]
        lab.run("INSERT INTO shop.t VALUES (2, 8.50)")
        second = next(found)
        assert [list(row["parts"].values()) for row in second["rows"]] == [[2], [2]]
        kinds = [(row["rowkind"], row["id"], float(row["half"])) for row in second["rows"]]
        assert kinds == [("-U", 2, 3.75), ("+U", 2, 4.25)]
    with server.stream(f"/views/shop.t/changes?last_id={first['id']}") as found:
        assert next(found) == second
        lab.run("ALTER TABLE shop.t SET ('schema.1.expr' = 'price / 4')")
        third = next(found)
        assert third["event"] == "snapshot"
        assert [float(row["half"]) for row in third["rows"]] == [1.25, 2.125]
    assert server.get("/views/shop.hidden", filter="half > 3").status_code == 422
    options = server.get("/views/shop.hidden/options").json()["options"]
    assert not any("half" in f"{key} {value}" for key, value in options.items())
