"""Paimon's consumer files: which snapshots of a table its readers and queries still need.

`<table>/consumer/consumer-<id>` holds `{"nextSnapshot": 7}`: snapshot expiry, ours and any other
program's, keeps snapshot 7 and all later ones. Each continuous query has a consumer
`streamhouse-<query id>` in each table it needs. Its file also names the query's checkpoint, which
Paimon ignores.
"""

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
from streamhouse.paimon.storage.files import names_after

_LOG = logging.getLogger("streamhouse.maintenance")
_PREFIX = "consumer-"
CHECKPOINT_LOCK = "lock"
"""The file of a checkpoint with the process id of its query; empty once the query has stopped."""
QUERY = "streamhouse-"
"""How the ids of continuous queries' consumers begin."""
BEFORE = f"{QUERY}before-"
"""How the ids of consumers begin that keep the state before a reader's next snapshot."""
QUERY_EXPIRES_S = 7 * 24 * 3600.0
"""How long the consumer of a query outlives the query, if the table has no
`consumer.expiration-time`."""


@dataclass(frozen=True)
class Consumer:
    """One consumer: its id, the oldest snapshot it needs, and its checkpoint's folder and host.

    `expires_ms` is how long it outlives its reader; None: the reader has not set it.
    """

    id: str
    next_snapshot: int
    checkpoint: str | None = None
    host: str | None = None
    expires_ms: int | None = None


class Consumers:
    """The consumers of one table, or of one branch if `table` is a branch."""

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
        ids = names_after(self._files, self._folder, _PREFIX)
        return [found for found in map(self.get, ids) if found is not None]

    def hold(
        self,
        consumer_id: str,
        snapshot: int,
        checkpoint: Path | None = None,
        expires_ms: int | None = None,
        back: bool = False,
    ) -> int:
        """Keep `snapshot` (at least 1) and all later ones from expiring, and refresh the consumer.

        Unless `back`, a consumer never moves back: if its position is later, it stays there.
        Returns its position.
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
        """Delete a consumer, so that its snapshots can expire."""
        self._files.delete(self._path(consumer_id))

    def refreshed_s(self, consumer_id: str) -> float | None:
        """When the consumer was last refreshed (epoch seconds); None if there is none."""
        return self._files.modified_s(self._path(consumer_id))

    def expired(self, consumer: Consumer) -> bool:
        """Whether a reader's consumer is past the expiration time that the reader has set."""
        refreshed = self.refreshed_s(consumer.id)
        limit = consumer.expires_ms
        return (
            limit is not None and refreshed is not None and time.time() - refreshed > limit / 1000
        )

    def drop_expired(self) -> list[str]:
        """Drop consumers of queries and readers that are gone; returns their ids.

        A query's consumer is dropped if its checkpoint was deleted, or if it was not refreshed for
        the table's `consumer.expiration-time`, by default seven days. A reader's is dropped after
        the expiration time that the reader has set. Paimon itself expires other consumers.
        """
        dropped = []
        for consumer in self.all():
            reason = self._expiry_reason(consumer)
            if reason is not None:
                self.drop(consumer.id)
                dropped.append(consumer.id)
                name = self._table.identifier
                _LOG.info("table '%s': dropped consumer %s, whose %s", name, consumer.id, reason)
        return dropped

    def _expiry_reason(self, consumer: Consumer) -> str | None:
        """Why a consumer's reader counts as gone, as text; None if it does not."""
        if consumer.id.startswith(BEFORE):
            return (
                None
                if self.get(consumer.id.removeprefix(BEFORE))
                else "reader's consumer was deleted"
            )
        if not consumer.id.startswith(QUERY):
            return "reader was inactive for too long" if self.expired(consumer) else None
        expiration_time = self._table.options.get("consumer.expiration-time")
        limit = (
            duration_ms("consumer.expiration-time", expiration_time) / 1000
            if expiration_time
            else QUERY_EXPIRES_S
        )
        refreshed = self.refreshed_s(consumer.id)
        if refreshed is not None and time.time() - refreshed > limit:
            return "query was inactive for too long"
        return "query's checkpoint is gone" if is_orphaned(consumer) else None

    def _path(self, consumer_id: str) -> str:
        return f"{self._folder}/{_PREFIX}{consumer_id}"


def query_consumer(query_id: str) -> str:
    """The id of a continuous query's consumers."""
    return f"{QUERY}{query_id}"


def is_orphaned(consumer: Consumer) -> bool:
    """Whether the query's checkpoint is gone; False on machines other than the checkpoint's."""
    if consumer.checkpoint is None or consumer.host != socket.gethostname():
        return False
    metadata = Path(consumer.checkpoint) / "metadata"
    try:
        return str(json.loads(metadata.read_text())["id"]) != consumer.id.removeprefix(QUERY)
    except FileNotFoundError:
        # If the disk is not mounted, the folder of all pipelines is missing too.
        return os.path.isdir(metadata.parent.parent.parent)
    except (OSError, ValueError, KeyError):
        return False
