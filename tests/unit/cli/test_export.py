"""`streamhouse export` as a user runs it: once, and each time a table changes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.processes import Command
from tests.waiting import DEADLINE_S, looks
from typer.testing import CliRunner

from streamhouse.cli.main import build

STREAMHOUSE = [sys.executable, "-c", "from streamhouse.cli.main import main; main()"]


def run(shop: Any, folder: Path, *arguments: str) -> Any:
    words = ["export", *arguments, "--warehouse", str(shop.path), "--to", str(folder)]
    # As a process of its own, since it takes signals; its output is what is tested.
    return subprocess.run(
        [*STREAMHOUSE, *words], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


class Exporting:
    """A running `streamhouse export`."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self.errors = folder / "stderr"
        with self.errors.open("w") as errors:
            said = errors.fileno()
            self.process = Command(["export", *arguments], said, said)

    def until(self, what: Callable[[], bool]) -> None:
        for _ in looks(self.errors.read_text):
            if what():
                break
            assert self.process.poll() is None, self.errors.read_text()

    def lines(self) -> list[str]:
        return self.errors.read_text().splitlines()

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)


@pytest.fixture
def start(shop: Any, tmp_path: Path) -> Iterator[Callable[..., Exporting]]:
    running: list[Exporting] = []

    def started(*arguments: str) -> Exporting:
        given = [*arguments, "--warehouse", str(shop.path), "--to", str(tmp_path / "out")]
        running.append(Exporting(given, tmp_path))
        return running[-1]

    yield started
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait(DEADLINE_S)


def test_once(shop: Any, tmp_path: Path) -> None:
    table = shop.sales()
    shop.write(table, ("Peru", 2, 2.5), ("Chad", 1, 1.5))
    folder = tmp_path / "a" / "b"
    done = run(shop, folder, table, "--columns", "orders, country")
    assert (done.returncode, done.stdout) == (0, "")
    path = folder / "shop.sales.json"
    size = path.stat().st_size
    assert done.stderr.startswith(f"shop.sales: snapshot 1, 2 rows, {size} bytes in ")
    assert done.stderr.rstrip().endswith(f" s: {path}") and done.stderr.count("\n") == 1
    assert json.loads(path.read_text())["rows"] == [
        {"orders": 1, "country": "Chad"},
        {"orders": 2, "country": "Peru"},
    ]
    shop.write(table, ("Chad", 9, 9.5))
    done = run(shop, folder, table, "--as-of", "1", "--format", "csv", "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "shop.sales.csv").read_text().split() == [
        "country,orders,revenue", "Chad,1,1.5", "Peru,2,2.5",
    ]  # fmt: skip


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_each_snapshot_until_a_signal(
    shop: Any,
    tmp_path: Path,
    start: Callable[..., Exporting],
    number: signal.Signals,
    code: int,
) -> None:
    table = shop.sales()
    path = tmp_path / "out" / "shop.sales.json"
    path.parent.mkdir()
    killed = path.parent / ".shop.sales.json.0123"
    killed.mkdir()
    (killed / ".lock").touch()

    def snapshot() -> int | None:
        found: int | None = json.loads(path.read_text())["snapshot"]
        return found

    one = start(table, "--every", "20ms")
    one.until(path.exists)
    assert snapshot() is None
    for number_of in (1, 2):
        last = shop.write(table, ("Chad", number_of, 1.5))
        one.until(lambda: snapshot() == last)  # noqa: B023 - called in this round
    one.until(lambda: len(one.lines()) == 3)
    assert one.end(number) == code
    assert [line.partition(" row")[0] for line in one.lines()] == [
        "shop.sales: no snapshot yet, 0",
        "shop.sales: snapshot 1, 1",
        "shop.sales: snapshot 2, 1",
    ]
    assert [file.name for file in path.parent.iterdir()] == ["shop.sales.json"]


def test_a_view_and_a_dropped_table(
    shop: Any, tmp_path: Path, start: Callable[..., Exporting]
) -> None:
    from tests.unit.serve.test_view_feed import TOP, keep

    shop.sales()
    keep(shop.warehouse, "big", TOP, "country", "twice")
    shop.write("shop.sales", ("Peru", 2, 1.0), ("Chad", 1, 1.0))
    one = start("shop.big", "--every", "20ms", "--format", "csv")
    path = tmp_path / "out" / "shop.big.csv"
    one.until(path.exists)
    assert path.read_text().split() == ["country,twice", "Peru,4"]
    shop.warehouse.drop_table("shop", "sales")
    assert one.process.wait(DEADLINE_S) == 1
    assert "reads 'shop.sales', which does not exist" in "\n".join(one.lines())
    assert path.read_text().split() == ["country,twice", "Peru,4"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shop.sale"], "there is no table 'sale' in database 'shop'; did you mean 'sales'"),
        (["sales"], "'sales' names no database; write database.table"),
        (["shop.sales", "--columns", "country,revenu"], "has no column 'revenu'; did you mean"),
        (["shop.sales", "--columns", ","], "option '--columns' is empty"),
        (["shop.sales", "--every", "0s"], "the least is '1ms'"),
        (["shop.sales", "--every", "1s", "--as-of", "1"], "cannot be combined"),
        (["shop.sales", "--as-of", "x"], "has no tag 'x'"),
    ],
)
def test_bad_input_is_one_message(
    shop: Any, tmp_path: Path, arguments: list[str], message: str
) -> None:
    shop.sales()
    words = ["export", *arguments, "--warehouse", str(shop.path), "--to", str(tmp_path / "out")]
    kept = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        result = CliRunner().invoke(build(words), words)
    finally:
        for one, handler in kept.items():
            signal.signal(one, handler)
    assert result.exit_code == 1
    assert message in result.stderr and result.stderr.count("\n") == 1
    assert not (tmp_path / "out" / "shop.sales.json").exists()
