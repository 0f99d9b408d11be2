"""Measures the latency from a commit in MySQL to the APP table, for the orders of the desk."""

from __future__ import annotations

import threading
import time

import numpy as np

from streamhouse.demo.latency import Latencies
from streamhouse.demo.membership.business import DESK, Business
from streamhouse.errors import StreamhouseError, TableError
from streamhouse.paimon.catalog.table_address import TableAddress

_POLL_S = 0.01
_ABSENT_POLL_S = 0.1
_RECENT_POLLS = 50
_FILTER = {"method": "equal", "field": "agent_id", "literals": [DESK]}


class FreshnessProbe:
    """Polls the board every 10 ms, and measures each order of the desk once, when it is included.

    The desk's orders never change, and arrive in the order of their commits: a board that shows n
    of them shows the first n. Orders from before the start do not count; `skip_s`: see `Latencies`.
    """

    def __init__(self, board: TableAddress, business: Business, skip_s: float = 0.0) -> None:
        self._board = board
        self._business = business
        self._displayed = 0
        self.ages = Latencies(skip_s, _RECENT_POLLS)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probes", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of the desk's orders that MySQL has and the board does not show yet."""
        return len(self._business.desk_ms) - self._displayed

    def stop(self) -> None:
        """Stop polling: orders that the board shows from now on do not count."""
        self._stopped.set()
        self._thread.join(5)

    def _run(self) -> None:
        last: int | None = None
        pause = _POLL_S
        while not self._stopped.wait(pause):
            pause = _POLL_S
            try:
                table = self._board.open()
                latest = table.latest_snapshot_id()
                if latest is None or latest == last:
                    continue
                now = time.time() * 1000
                rows = [
                    row
                    for batch in table.read(["agent_id", "orders"], snapshot=latest, filter=_FILTER)
                    for row in batch.to_pylist()
                    if row["agent_id"] == DESK
                ]
            except TableError:
                pause = _ABSENT_POLL_S
                continue
            except StreamhouseError:
                # The snapshot expired while it was read, or the store failed: look again.
                continue
            last = latest
            if rows:
                self._take(int(rows[0]["orders"] or 0), now)

    def _take(self, displayed: int, now_ms: float) -> None:
        made = self._business.desk_ms[self._displayed : displayed]
        if not made:
            return
        self._displayed += len(made)
        self.ages.add(np.array(made), now_ms)
