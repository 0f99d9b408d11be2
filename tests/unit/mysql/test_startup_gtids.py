"""The start after a set of GTIDs, in binlogs of MySQL whose transactions may have none."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from typing import Any, cast
from unittest.mock import patch

import pytest

from streamhouse.connectors.mysql_cdc.binlog import startup
from streamhouse.connectors.mysql_cdc.binlog.dump import RawEvent
from streamhouse.connectors.mysql_cdc.binlog.format.events import ANONYMOUS, HEADER
from streamhouse.errors import DataLossError, OptionError
from streamhouse.mysql.connection import Session
from streamhouse.mysql.gtids import GtidSet, merged_ranges, parse_gtids
from streamhouse.mysql.options import parse
from streamhouse.mysql.position import BinlogPosition
from streamhouse.mysql.table import Server

GTID = 33
ORIGIN = "11111111-1111-1111-1111-111111111111"
FILE = "binlog.000001"
OPTIONS = parse(
    {"hostname": "h", "username": "u", "password": "p", "database-name": "d", "table-name": "t"}
)
SERVER = Server(False, "SHOW BINARY LOG STATUS")


class _Server:
    """Answers for the variables that a start compares with."""

    def __init__(self, executed: str, purged: str) -> None:
        self.variables = {"gtid_executed": executed, "gtid_purged": purged}

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        return [(self.variables[statement.rpartition(".")[2]],)]


def at(index: int) -> BinlogPosition:
    return BinlogPosition(FILE, 4 + 100 * index)


def events(transactions: Sequence[int]) -> list[startup._Event]:
    """A GTID event for each transaction, which it is all of; 0 for an anonymous one."""
    found = []
    for index, number in enumerate(transactions):
        kind = GTID if number else ANONYMOUS
        body = b"\0" + uuid.UUID(ORIGIN).bytes + number.to_bytes(8, "little")
        data = HEADER.pack(0, kind, 1, HEADER.size + len(body), 0, 0) + body
        found.append(
            (RawEvent(0, kind, len(data), 0, data, 0, None), at(index), at(index + 1), True)
        )
    return found


def gtids(numbers: Sequence[int]) -> GtidSet:
    return GtidSet({ORIGIN: merged_ranges([(n, n) for n in numbers])} if numbers else {}, False, {})


def started(
    transactions: Sequence[int], wanted: GtidSet, executed: GtidSet, purged: str = ""
) -> list[int]:
    """The transactions that a stream reads which starts after a set."""
    session = cast(Session, _Server(str(executed), purged))
    search = startup._Search(session, OPTIONS, at(len(transactions)))
    with (
        patch.object(search, "_file_after", return_value=(FILE, GtidSet({}, False, {}))),
        patch.object(search, "_events", return_value=iter(events(transactions))),
    ):
        start, skip = search.after_gtids(wanted, SERVER)
    skipped = None if skip is None or skip.gtids is None else parse_gtids(skip.gtids)
    return [
        number
        for index, number in enumerate(transactions)
        if start <= at(index) and not (number and skipped and skipped.contains(ORIGIN, number))
    ]


def test_a_start_reads_all_that_is_not_in_the_set_or_is_refused() -> None:
    refused = 0
    for seed in range(300):
        chance = random.Random(seed)
        numbers = list(range(1, chance.randrange(2, 8)))
        chance.shuffle(numbers)  # A replica may log in another order.
        transactions = list(numbers)
        for _ in range(chance.choice([0, 0, 1, 2])):
            transactions.insert(chance.randrange(len(transactions) + 1), 0)
        wanted = chance.sample(numbers, chance.randrange(1, len(numbers) + 1))
        last = max(transactions.index(number) for number in wanted)
        if 0 in transactions[:last]:
            refused += 1
            with pytest.raises(OptionError, match=r"binlog.000001:\d+, before others .* no GTID"):
                started(transactions, gtids(wanted), gtids(numbers))
            continue
        found = started(transactions, gtids(wanted), gtids(numbers))
        assert found == [number for number in transactions if number not in wanted], seed
    assert 20 < refused < 200


def test_transactions_that_were_executed_and_not_logged_are_data_loss() -> None:
    executed = gtids([1, 2, 3, 4])
    assert started([3, 4], gtids([1, 2]), executed, purged=f"{ORIGIN}:1-2") == [3, 4]
    with pytest.raises(DataLossError, match=r"gtid_purged is '.*:1-3'"):
        started([4], gtids([1, 2]), executed, purged=f"{ORIGIN}:1-3")
    with pytest.raises(OptionError, match="has not logged all of"):
        started([1, 2], gtids([1, 2, 3]), gtids([1, 2]))
