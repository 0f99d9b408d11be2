"""What readers and queries still need of a table: Paimon's own consumer files.

`<table>/consumer/consumer-<id>` holds `{"nextSnapshot": 7}`: expiry, ours and any other program's,
keeps snapshot 7 and all later ones. Each continuous query has one, `streamhouse-<query id>`, at
each table it needs; its file also names the query's checkpoint, which Paimon passes over.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from streamhouse.options import duration_ms
from streamhouse.paimon.read.table import Table

_LOG = logging.getLogger("streamhouse.maintenance")
_PREFIX = "consumer-"
QUERY = "streamhouse-"
"""How the consumers of continuous queries are named."""
BEFORE = f"{QUERY}before-"
"""How those are named that keep the state before the next snapshot of a reader's own consumer."""
DEAD_AFTER_S = 7 * 24 * 3600.0
"""How long the consumer of a query lives without the query, where the table has no
`consumer.expiration-time`."""


@dataclass(frozen=True)
class Consumer:
    """One consumer: its id, the first snapshot it still needs, and its checkpoint's folder.

    `expires_ms` is how long it lives without its reader, where the reader said so.
    """

    id: str
    next_snapshot: int
    checkpoint: str | None = None
    host: str | None = None
    expires_ms: int | None = None


class Consumers:
    """The consumers of one table, or of the branch that `table` is."""

    def __init__(self, table: Table) -> None:
        self._files = table.files
        self._folder = f"{table.root}/consumer"
        self._table = table

    def get(self, consumer_id: str) -> Consumer | None:
        """One consumer; None if there is none, or its file is damaged."""
        text = self._files.read_text(self._path(consumer_id))
        try:
            record = json.loads(text) if text else None
            if not isinstance(record, Mapping):
                return None
            return Consumer(
                consumer_id,
                int(record["nextSnapshot"]),
                record.get("checkpoint"),
                record.get("host"),
                None if record.get("expiresMs") is None else int(record["expiresMs"]),
            )
        except (ValueError, KeyError, TypeError):
            return None

    def all(self) -> list[Consumer]:
        """All consumers, by id."""
        ids = [
            name.removeprefix(_PREFIX)
            for name, is_folder in self._files.names(self._folder)
            if not is_folder and name.startswith(_PREFIX)
        ]
        return [one for one in map(self.get, sorted(ids)) if one is not None]

    def hold(
        self,
        consumer_id: str,
        snapshot: int,
        checkpoint: Path | None = None,
        expires_ms: int | None = None,
        back: bool = False,
    ) -> int:
        """Have `snapshot` (at least 1) and all later ones kept, and tell that the reader lives.

        Unless `back`, a consumer never goes back: if it stands further on, it stays there. Returns
        where it stands then.
        """
        before = None if back else self.get(consumer_id)
        at = max(1, snapshot, before.next_snapshot if before is not None else 1)
        record: dict[str, object] = {"nextSnapshot": at}
        if expires_ms is not None:
            record["expiresMs"] = expires_ms
        if checkpoint is not None:
            record |= {"checkpoint": str(checkpoint), "host": socket.gethostname()}
        self._files.write_text(self._path(consumer_id), json.dumps(record))
        return at

    def drop(self, consumer_id: str) -> None:
        """Need nothing any more."""
        self._files.delete(self._path(consumer_id))

    def refreshed_s(self, consumer_id: str) -> float | None:
        """When the consumer last told that it lives (epoch seconds); None if there is none."""
        return self._files.modified_s(self._path(consumer_id))

    def expired(self, consumer: Consumer) -> bool:
        """Whether a reader's consumer has outlived the time that the reader gave it."""
        seen = self.refreshed_s(consumer.id)
        limit = consumer.expires_ms
        return limit is not None and seen is not None and time.time() - seen > limit / 1000

    def drop_dead(self) -> list[str]:
        """Drop consumers of queries and readers that are gone; their ids.

        Those whose checkpoint was deleted, and those that were not refreshed for
        `consumer.expiration-time` of the table, by default for seven days; of readers, those past
        the time that they gave themselves. Other consumers are Paimon's to expire.
        """
        dead = []
        for one in self.all():
            why = self._dead(one)
            if why is not None:
                self.drop(one.id)
                dead.append(one.id)
                name = self._table.identifier
                _LOG.info("table '%s': dropped consumer %s, whose %s", name, one.id, why)
        return dead

    def _dead(self, one: Consumer) -> str | None:
        """What happened to a consumer's reader, if it is gone."""
        if one.id.startswith(BEFORE):
            return None if self.get(one.id.removeprefix(BEFORE)) else "reader's consumer is gone"
        if not one.id.startswith(QUERY):
            return "reader was not seen for too long" if self.expired(one) else None
        given = self._table.options.get("consumer.expiration-time")
        limit = duration_ms("consumer.expiration-time", given) / 1000 if given else DEAD_AFTER_S
        refreshed = self.refreshed_s(one.id)
        if refreshed is not None and time.time() - refreshed > limit:
            return "query was not seen for too long"
        return "query lost its checkpoint" if _orphaned(one) else None

    def _path(self, consumer_id: str) -> str:
        return f"{self._folder}/{_PREFIX}{consumer_id}"


def query_consumer(query_id: str) -> str:
    """The id of a continuous query's consumers."""
    return f"{QUERY}{query_id}"


def _orphaned(consumer: Consumer) -> bool:
    """Whether the checkpoint is gone, as seen on the machine it was on."""
    if consumer.checkpoint is None or consumer.host != socket.gethostname():
        return False
    metadata = Path(consumer.checkpoint) / "metadata"
    try:
        return str(json.loads(metadata.read_text())["id"]) != consumer.id.removeprefix(QUERY)
    except FileNotFoundError:
        # Of a disk that is not mounted not even the pipelines' folder is there.
        return os.path.isdir(metadata.parent.parent.parent)
    except (OSError, ValueError, KeyError):
        return False
