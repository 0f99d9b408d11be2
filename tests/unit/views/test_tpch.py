"""The questions of TPC-H as views, while rows of all tables are inserted, updated and deleted."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from tests.unit.views.view_session import ViewSession

_TABLES = """USE shop;
CREATE TABLE nations (id INT PRIMARY KEY NOT ENFORCED, name STRING, region INT)
  WITH ('bucket' = '1');
CREATE TABLE suppliers (id INT PRIMARY KEY NOT ENFORCED, name STRING, nation INT,
  balance DECIMAL(15, 2)) WITH ('bucket' = '1');
CREATE TABLE clients (id INT PRIMARY KEY NOT ENFORCED, name STRING, nation INT, phone STRING,
  balance DECIMAL(15, 2), segment STRING) WITH ('bucket' = '1');
CREATE TABLE parts (id INT PRIMARY KEY NOT ENFORCED, name STRING, size_ INT) WITH ('bucket' = '1');
CREATE TABLE stock (part INT, supplier INT, available INT, cost DECIMAL(15, 2),
  PRIMARY KEY (part, supplier) NOT ENFORCED) WITH ('bucket' = '1');
CREATE TABLE sales (id INT PRIMARY KEY NOT ENFORCED, client INT, day_ DATE, priority STRING)
  WITH ('bucket' = '1');
CREATE TABLE lines (sale INT, number INT, part INT, supplier INT, quantity INT,
  price DECIMAL(15, 2), discount DECIMAL(15, 2), returned STRING, status STRING, shipped DATE,
  due DATE, received DATE, mode_ STRING, PRIMARY KEY (sale, number) NOT ENFORCED)
  WITH ('bucket' = '1');
INSERT INTO nations VALUES (0, 'N0', 0), (1, 'N1', 1), (2, 'N2', 1), (3, 'N3', 0)
"""
_QUESTIONS = re.findall(
    r"-- name: (\w+)\n(.*?);\n", (Path(__file__).parent / "tpch.sql").read_text(), re.DOTALL
)


def _day(rng: random.Random) -> str:
    return f"DATE '{rng.randint(1995, 1998)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}'"


def _rows(rng: random.Random, table: str) -> str:
    """A row of a table; that of a key that it has replaces the row."""
    match table:
        case "suppliers":
            return (
                f"{rng.randint(0, 5)}, 's{rng.randint(0, 3)}', {rng.randint(0, 3)}, {_money(rng)}"
            )
        case "clients":
            return (
                f"{rng.randint(0, 9)}, 'c{rng.randint(0, 9)}', {rng.randint(0, 3)}, "
                f"'{rng.randint(1, 3)}-5', {_money(rng)}, '{rng.choice('AB')}'"
            )
        case "parts":
            return f"{rng.randint(0, 5)}, '{rng.choice(('ab', 'ba', 'c'))}', {rng.randint(0, 30)}"
        case "stock":
            return f"{rng.randint(0, 5)}, {rng.randint(0, 5)}, {rng.randint(0, 50)}, {_money(rng)}"
        case "sales":
            return f"{rng.randint(0, 15)}, {rng.randint(0, 9)}, {_day(rng)}, '{rng.randint(1, 4)}'"
        case _:
            return (
                f"{rng.randint(0, 15)}, {rng.randint(0, 3)}, {rng.randint(0, 5)}, "
                f"{rng.randint(0, 5)}, {rng.randint(1, 30)}, {_money(rng)}, "
                f"0.0{rng.randint(0, 9)}, '{rng.choice('RNA')}', '{rng.choice('OF')}', "
                f"{_day(rng)}, {_day(rng)}, {_day(rng)}, '{rng.choice(('AIR', 'RAIL', 'SHIP'))}'"
            )


def _money(rng: random.Random) -> str:
    return f"{rng.randint(-5000, 99999) / 100:.2f}"


def _change(rng: random.Random, rows: int) -> str:
    statements = ["USE shop"]
    for table in ("suppliers", "clients", "parts", "stock", "sales", "lines"):
        values = {(row := _rows(rng, table)): f"({row})" for _ in range(rows)}
        statements.append(f"INSERT INTO {table} VALUES {', '.join(values.values())}")
        if rng.random() < 0.4:
            column = {"stock": "part", "lines": "sale"}.get(table, "id")
            statements.append(f"DELETE FROM {table} WHERE {column} % 4 = {rng.randint(0, 3)}")
    return "; ".join(statements)


@pytest.mark.parametrize(
    ("questions", "seed"),
    [
        (_QUESTIONS[16:18], 0),
        *(pytest.param(_QUESTIONS, seed, marks=pytest.mark.soak) for seed in range(1, 6)),
    ],
)
def test_the_questions_as_views(
    questions: list[tuple[str, str]], seed: int, tmp_path: Path
) -> None:
    session, rng = ViewSession(tmp_path / "warehouse", "incremental"), random.Random(seed)
    session.execute(_TABLES)
    for name, query in questions:
        session.view(name, query)
    for rows in (12, 3, 2):
        session.execute(_change(rng, rows))
        for name, query in questions:
            session.refresh(name)
            session.check(name, query)
            assert session.refresh(name) == 0, f"nothing has changed, but a refresh writes: {name}"
