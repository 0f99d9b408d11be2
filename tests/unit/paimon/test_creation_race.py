"""Processes that create the same databases, tables and views at the same time."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
from tests.processes import FORKS
from tests.waiting import DEADLINE_S

from streamhouse.errors import CommitConflictError, TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.storage.lock import creation_lock
from streamhouse.runtime.execute import execute
from streamhouse.runtime.state import lookup_journal, pending_rows
from streamhouse.sql.plan import Column

PROCESSES, ROUNDS = 3, 10


def _columns(number: int) -> list[Column]:
    """A declaration of its own for each process, so that a lost one shows."""
    return [Column("k", "INT", False), Column(f"of_{number}", "INT")]


def _race(lake: str, barrier: Barrier, results: Any, number: int, if_not_exists: bool) -> None:
    for turn in range(ROUNDS):
        warehouse, outcome = Warehouse(lake), "created"
        barrier.wait(DEADLINE_S)
        try:
            warehouse.create_database(f"d{turn}", if_not_exists=True)
            warehouse.create_table(
                f"d{turn}", "t", _columns(number), ("k",), (), {"bucket": "1"},
                if_not_exists=if_not_exists,
            )  # fmt: skip
            _create_auxiliary_tables(TableAddress(warehouse.options, f"d{turn}.t"))
        except TableError as error:
            outcome = str(error)
        except Exception as error:  # noqa: BLE001  # of any class: it is what the test looks for
            outcome = repr(error)
        # What a process sees right after its statement is what it would write to.
        seen = tuple(column.name for column in warehouse.table(f"d{turn}.t").columns)
        results.put((turn, number, outcome, seen))


def _create_auxiliary_tables(target: TableAddress) -> None:
    """The tables that continuous queries keep beside their target."""
    pending_rows.create_tables(
        target.auxiliary_table("pending"), target.auxiliary_table("unmatched"), _columns(0), False
    )
    lookup_journal.create_table(target.auxiliary_table("looked_up"))


@pytest.fixture(params=[True, False], ids=["if_not_exists", "plain"])
def outcomes(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[bool, list[tuple[int, int, str, tuple[str, ...]]]]]:
    barrier, results = FORKS.Barrier(PROCESSES), FORKS.Queue()
    processes = [
        FORKS.Process(target=_race, args=(str(tmp_path), barrier, results, one, request.param))
        for one in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    try:
        yield request.param, [results.get(timeout=DEADLINE_S) for _ in range(PROCESSES * ROUNDS)]
    finally:
        for process in processes:
            process.join(DEADLINE_S)
            process.kill()


def test_one_process_creates_a_table_and_the_others_find_it(
    outcomes: tuple[bool, list[tuple[int, int, str, tuple[str, ...]]]],
) -> None:
    if_not_exists, found = outcomes
    for turn in range(ROUNDS):
        these = [item for item in found if item[0] == turn]
        assert len({seen for *_, seen in these}) == 1, these
        reported = Counter(outcome for _, _, outcome, _ in these)
        if if_not_exists:
            assert reported == {"created": PROCESSES}
        else:
            exists = f"table 'd{turn}.t' already exists; write IF NOT EXISTS to keep it"
            assert reported == {"created": 1, exists: PROCESSES - 1}
            (winner,) = (number for _, number, outcome, _ in these if outcome == "created")
            assert these[0][3] == tuple(column.name for column in _columns(winner))


def test_creations_wait_for_each_other(tmp_path: Path) -> None:
    lake = str(tmp_path)
    execute(lake, "CREATE DATABASE d; CREATE TABLE d.t (k INT)")
    with creation_lock(lake):
        for wanted in (lake, f"{lake}/"):
            with pytest.raises(
                CommitConflictError,
                match=r"has been creating a table of the warehouse .* for more than 0.05 s",
            ):
                with creation_lock(wanted, 0.05):
                    pass
    execute(lake, "CREATE TABLE IF NOT EXISTS d.t (k INT); CREATE VIEW d.v AS SELECT k FROM d.t")
    execute(lake, "ALTER TABLE d.t RENAME TO d.u; DROP VIEW d.v; DROP TABLE d.u; DROP DATABASE d")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_existing_table_of_a_read_only_warehouse_is_found(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    execute(lake, "CREATE DATABASE d; CREATE TABLE d.t (k INT)")
    os.chmod(lake, 0o555)
    try:
        execute(lake, "CREATE TABLE IF NOT EXISTS d.t (k INT)")
    finally:
        os.chmod(lake, 0o755)
