"""Computed columns stand where they are declared, for every reader and after every ALTER TABLE."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.single_stream import analyze_stream
from tests.unit.runtime.test_script import BATCH, CollectedOutput

from streamhouse.duckdb_engine import bounded_reader
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.execute import execute
from streamhouse.runtime.script import ScriptOptions, ScriptRunner
from streamhouse.runtime.session.session import Session
from streamhouse.serve.views.served_view import WarehouseTables
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Query, Select

SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 60))]


class Model:
    """A table's columns in their order; `factors` has the computed ones: column and factor."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        stored = [f"p{n}" for n in range(rng.randint(2, 4))]
        self.factors = {
            f"c{n}": (rng.choice(stored), rng.randint(2, 9)) for n in range(rng.randint(1, 3))
        }
        self.order = [*stored, *self.factors]
        rng.shuffle(self.order)

    @property
    def stored(self) -> list[str]:
        return [name for name in self.order if name not in self.factors]

    def create(self) -> str:
        columns = [
            f"{name} AS {self.factors[name][0]} * {self.factors[name][1]}"
            if name in self.factors
            else f"{name} INT"
            for name in self.order
        ]
        return f"CREATE TABLE t ({', '.join(columns)})"

    def row(self, values: dict[str, Any]) -> list[tuple[str, Any]]:
        computed = {name: values[of] * factor for name, (of, factor) in self.factors.items()}
        return [(name, (values | computed)[name]) for name in self.order]

    def change(self) -> str:
        """A random ALTER TABLE, applied to the order."""
        used = {of for of, _ in self.factors.values()}
        free = [name for name in self.stored if name not in used]
        kind = self.rng.choice(["ADD", "MODIFY", "RENAME", "DROP"] if free else ["ADD", "MODIFY"])
        name = f"n{self.rng.random()}"[:8].replace(".", "") if kind == "ADD" else ""
        name = name or self.rng.choice(self.stored if kind == "MODIFY" else free)
        if kind == "RENAME":
            self.order[self.order.index(name)] = name + "r"
            return f"ALTER TABLE t RENAME {name} TO {name}r"
        if kind != "ADD":
            self.order.remove(name)
        if kind == "DROP":
            return f"ALTER TABLE t DROP {name}"
        after = self.rng.choice([*self.stored, "", None])
        if after is None and kind == "ADD":
            self.order.append(name)
            return f"ALTER TABLE t ADD {name} INT"
        self.order.insert(self.order.index(after) + 1 if after else 0, name)
        return f"ALTER TABLE t {kind} {name} INT {f'AFTER {after}' if after else 'FIRST'}"


class Lab:
    """One warehouse, and what scripts over it return."""

    def __init__(self, folder: Path) -> None:
        self.options = {"warehouse": str(folder)}

    def run(self, text: str) -> list[list[dict[str, Any]]]:
        output = CollectedOutput()
        runner = ScriptRunner(ScriptOptions("s.sql", self.options), output)
        runner.run(parse_script(BATCH + text))
        return output.tables

    def query(self, text: str) -> list[dict[str, Any]]:
        """The rows by `streamhouse query`."""
        warehouse = Warehouse(self.options)
        with bounded_reader(
            analyze_bounded(_query(text), WarehouseTables(warehouse)), warehouse
        ) as r:
            rows: list[dict[str, Any]] = r.read_all().to_pylist()
        return rows

    def streamed(self) -> list[str]:
        """The output columns of a continuous SELECT *."""
        plan = analyze_stream(_query("SELECT * FROM t"), Session(self.options), None, ())
        return [column.name for column in plan.rows.columns]


def _query(text: str) -> Query:
    (statement,) = parse_script(text)
    assert isinstance(statement, Select)
    return statement.query


def _items(rows: list[dict[str, Any]]) -> list[list[tuple[str, Any]]]:
    return [list(row.items()) for row in rows]


def _check(lab: Lab, model: Model, row: list[tuple[str, Any]]) -> None:
    described, text, rows = lab.run("DESCRIBE t; SHOW CREATE TABLE t; SELECT * FROM t")
    assert [column["name"] for column in described] == model.order
    assert _items(rows) == _items(lab.query("SELECT * FROM `default`.t")) == [row]
    assert lab.streamed() == model.order
    copy = text[0]["create table"].replace("`t`", "`again`")
    (again,) = lab.run(f"DROP TABLE IF EXISTS again; {copy}; DESCRIBE again")
    assert again == described


@pytest.mark.parametrize("seed", SEEDS)
def test_every_reader_sees_the_declared_order(tmp_path: Path, seed: int) -> None:
    model = Model(random.Random(seed))
    lab = Lab(tmp_path)
    values: dict[str, Any] = {name: n + 1 for n, name in enumerate(model.stored)}
    row = model.row(values)
    copied = ", ".join(f"{name} INT" for name in model.order)
    given = ", ".join(map(str, values.values()))
    lab.run(
        f"{model.create()}; INSERT INTO t VALUES ({given}); CREATE VIEW v AS SELECT * FROM t; "
        f"CREATE TABLE copy_ ({copied}); INSERT INTO copy_ SELECT * FROM t"
    )
    _check(lab, model, row)
    for name in ("v", "copy_"):
        assert _items(lab.query(f"SELECT * FROM `default`.{name}")) == [row]
    for _ in range(3):
        before = model.stored
        change = model.change()
        lab.run(change)
        renames = dict(zip(before, model.stored, strict=False)) if "RENAME" in change else {}
        values = {renames.get(name, name): value for name, value in values.items()}
        values = {name: values.get(name) for name in model.stored}
        _check(lab, model, model.row(values))


def test_computed_columns_read_fields_of_rows(tmp_path: Path) -> None:
    """Also a field that is named like a column."""
    execute(
        {"warehouse": str(tmp_path)},
        "CREATE TABLE t (k INT, p ROW<k INT, q ROW<k INT>>, a AS p.k, b AS p.q.k + k, c AS p.q); "
        "INSERT INTO t VALUES (1, CAST(ROW(2, ROW(3)) AS ROW<k INT, q ROW<k INT>>))",
    )
    warehouse = Warehouse(str(tmp_path))
    query = analyze_bounded(_query("SELECT k, a, b, c FROM t"), WarehouseTables(warehouse))
    with bounded_reader(query, warehouse) as reader:
        assert reader.read_all().to_pylist() == [{"k": 1, "a": 2, "b": 4, "c": {"k": 3}}]
