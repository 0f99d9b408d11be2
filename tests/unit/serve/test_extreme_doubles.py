"""Every double, also NaN and the infinities, is the same after each text surface of a server."""

from __future__ import annotations

import csv
import io
import json
import random
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import DEADLINE_S
from typer.testing import CliRunner

from streamhouse.cli.main import build
from streamhouse.runtime.batch.progress_line import ProgressLine
from streamhouse.serve.export_files import Exporter, Extract
from streamhouse.serve.formats.row_formats import RowFormat
from streamhouse.sql.plan import Column

COLUMNS = (
    Column("id", "INT"), Column("d", "DOUBLE"), Column("f", "FLOAT"),
    Column("list", "ARRAY<DOUBLE>"), Column("map", "MAP<STRING, DOUBLE>"),
    Column("row", "ROW<x DOUBLE>"),
)  # fmt: skip
SEED = 248
SPECIAL = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 5e-324, -5e-324, 2.0**53 + 2,
           1.7976931348623157e308, -1.7976931348623157e308, 0.1, 1e16,
           123456789012345678.0)  # fmt: skip


def doubles() -> Iterator[float]:
    yield from SPECIAL
    generated = random.Random(SEED)
    for _ in range(30):
        yield struct.unpack("<d", generated.randbytes(8))[0]


def single(value: float) -> float:
    """The nearest FLOAT; an infinity beyond the largest."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


VALUES = tuple(doubles())
EXPECTED = [(value, single(value), [value], {"k": value}, {"x": value}) for value in VALUES]


def bits(value: Any) -> Any:
    """Numbers, and texts of numbers, by their bits; all NaN are one."""
    match value:
        case list():
            return [bits(each) for each in value]
        case dict():
            return {name: bits(each) for name, each in value.items()}
    number = float(value)
    return "NaN" if number != number else struct.pack("<d", number)


def check(rows: list[dict[str, Any]]) -> None:
    found = {int(row["id"]): [bits(row[column.name]) for column in COLUMNS[1:]] for row in rows}
    expected = {number: [bits(v) for v in values] for number, values in enumerate(EXPECTED)}
    assert found == expected


def parsed(text: str) -> Any:
    """JSON as the standard has it, without Python's words for what it lacks."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def from_csv(text: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(text, newline="")))
    for row in rows:
        row |= {name: parsed(row[name]) for name in ("list", "map", "row")}
    return rows


@pytest.fixture(params=["keyed", "append"])
def extremes(shop: Any, request: pytest.FixtureRequest) -> str:
    table: str = shop.create("extremes", COLUMNS, ["id"] if request.param == "keyed" else ())
    rows = [(n, d, f, a, [("k", d)], r) for n, (d, f, a, _, r) in enumerate(EXPECTED)]
    shop.write(table, *rows)
    return table


def test_responses_and_streams(serve: Any, shop: Any, extremes: str) -> None:
    server = serve()
    check(parsed(server.get(f"/views/{extremes}").text)["rows"])
    check(parsed(server.get(f"/views/{extremes}", filter="id >= 0").text)["rows"])
    check(from_csv(server.get(f"/views/{extremes}", format="csv").text))
    check(parsed(server.sql(f"SELECT * FROM {extremes}").text)["rows"])
    with server.stream(f"/views/{extremes}/changes") as events:
        check(next(events)["rows"])
    with server.socket(f"/views/{extremes}/changes") as reader:
        check(parsed(reader.recv(timeout=DEADLINE_S))["rows"])


@pytest.mark.parametrize("form", [RowFormat.JSON, RowFormat.CSV])
def test_exports(shop: Any, extremes: str, tmp_path: Path, form: RowFormat) -> None:
    exporter = Exporter(partial(Extract, shop.warehouse, extremes), "e", form, tmp_path)
    done = exporter.write(ProgressLine())
    assert done is not None
    text = done.path.read_bytes().decode()
    check(parsed(text)["rows"] if form is RowFormat.JSON else from_csv(text))


@pytest.mark.parametrize("form", ["json", "csv"])
def test_query(shop: Any, extremes: str, form: str) -> None:
    arguments = ["query", f"SELECT * FROM {extremes}", "--warehouse", str(shop.path)]
    result = CliRunner().invoke(build(arguments), [*arguments, "--format", form])
    assert result.exit_code == 0, result.output
    check(parsed(result.stdout) if form == "json" else from_csv(result.stdout))
