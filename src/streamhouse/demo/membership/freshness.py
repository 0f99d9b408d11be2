"""How old the desk's orders are when the board shows them: MySQL commit to APP table."""

from __future__ import annotations

import threading
import time
from collections import deque

import numpy as np

from streamhouse.demo.membership.business import DESK, Business
from streamhouse.demo.revenue.freshness import Ages
from streamhouse.errors import StreamhouseError, TableError
from streamhouse.paimon.catalog.table_address import TableAddress

_POLL_S = 0.01
_ABSENT_POLL_S = 0.1
_LATELY = 50
_FILTER = {"method": "equal", "field": "agent_id", "literals": [DESK]}


class Probes:
    """Looks at the board every 10 ms; each of the desk's orders counts once, when it is in.

    The desk's orders are never changed, and come in the order of their commits: a board that shows
    n of them shows the first n. What was there at the start does not count, nor what is committed
    in the first `skip_s` seconds of the business.
    """

    def __init__(self, board: TableAddress, business: Business, skip_s: float = 0.0) -> None:
        self._board = board
        self._business = business
        self._skip_ms = skip_s * 1000
        self._shown = 0
        self._all, self._window = Ages(), Ages()
        self._lately: deque[float] = deque(maxlen=_LATELY)
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probes", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Orders of the desk that MySQL has and the board does not show."""
        return len(self._business.desk_ms) - self._shown

    def figures(self) -> dict[str, float] | None:
        """Milliseconds `p50`, `p99` and `max` over all; None without any."""
        with self._lock:
            return self._all.figures()

    def recent(self) -> dict[str, float] | None:
        """The same over the last orders."""
        ages = Ages()
        with self._lock:
            ages.add(np.array(self._lately))
        return ages.figures()

    def window(self) -> dict[str, float] | None:
        """The same over what came since the last call of this."""
        with self._lock:
            window, self._window = self._window, Ages()
        return window.figures()

    def stop(self) -> None:
        """Look no more: what the board shows from now on does not count."""
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
                last = latest
                rows = [
                    row
                    for batch in table.read(["agent_id", "orders"], snapshot=last, filter=_FILTER)
                    for row in batch.to_pylist()
                    if row["agent_id"] == DESK
                ]
            except TableError:
                pause = _ABSENT_POLL_S
                continue
            except StreamhouseError:
                # Expired while we looked.
                continue
            if rows:
                self._take(int(rows[0]["orders"] or 0), now)

    def _take(self, shown: int, now_ms: float) -> None:
        made = self._business.desk_ms[self._shown : shown]
        if not made:
            return
        self._shown += len(made)
        ages = now_ms - np.array(made)
        counted = ages[np.array(made) >= self._business.desk_ms[0] + self._skip_ms]
        with self._lock:
            self._lately.extend(ages)
            self._all.add(counted)
            self._window.add(counted)
