"""The `paimon` connector; the catalog (`paimon.catalog`) checks the declarations of its tables."""

from collections.abc import Callable, Collection, Sequence
from functools import partial

from streamhouse.connectors.base import BatchLog, Connector, Sink, SinkCommitter, WrittenBatch
from streamhouse.connectors.specs import SinkSpec, SourceSpec
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.commit_retries import rows_changed, with_retries
from streamhouse.paimon.write.table_writer import TableWriter, file_prefix, query_tag
from streamhouse.sql.plan import Capabilities

_BUFFER_BYTES = 128 * 1024 * 1024
_BASE_WITHIN_S = 1.0
"""How old the snapshot may be that a batch takes as the one that its tasks read; an older one only
means that more commits are looked at."""


def sink_writer(
    address: TableAddress,
    query_id: str,
    batch: int,
    attempt: str | None = None,
    commutes: bool = False,
) -> TableWriter:
    """The writer of one task; its files are invisible until the committer commits them.

    `attempt` as for `file_prefix`.
    """
    return TableWriter(
        address.warehouse,
        address.identifier,
        query_id,
        file_prefix(query_id, batch, attempt),
        planned=address.schema_id,
        buffer_bytes=_BUFFER_BYTES,
        followed=True,
        commutes=commutes,
        commit=batch,
    )


class PaimonSinkCommitter(SinkCommitter):
    """Commits each batch once: the query id is the commit user, the batch number the identifier."""

    def __init__(self, address: TableAddress, query_id: str, commutes: bool) -> None:
        self._tag = query_tag(query_id)
        self._commutes = commutes
        self._committer = TableCommitter(address.warehouse, address.identifier, query_id)

    @property
    def table(self) -> Table:
        return self._committer.table

    def check_log(self, log: BatchLog) -> None:
        log.check(self._committer.last_identifier(), f"table {self.table.identifier}")

    def commit(self, write: Callable[[], WrittenBatch | None], discard: Callable[[], None]) -> bool:
        def attempt() -> bool | None:
            base = self.table.latest_snapshot_id(_BASE_WITHIN_S)
            written = write()
            if written is None:
                return False
            committed = self.commit_written(written, base)
            if committed is None:
                discard()
            return committed

        return with_retries(self.table, attempt)

    def commit_written(self, written: WrittenBatch, base: int | None) -> bool | None:
        """Commit a batch whose tasks read the table at the snapshot `base`.

        False if the batch was already committed. None if other commits outdated its files, which
        are deleted then.
        """
        table, committer = self.table, self._committer
        batch, messages = written.number, written.messages
        # Sums commute with all other commits, but a key must not get into two dynamic buckets.
        if not messages or (self._commutes and not table.has_dynamic_buckets):
            return committer.commit(batch, messages)
        with commit_lock(table.location):
            if rows_changed(table, base) and not committer.committed(batch):
                committer.abort(messages)
                return None
            return committer.commit(batch, messages)

    def remove_leftovers(self, from_batch: int, keep: Collection[str] = ()) -> int:
        return self._committer.remove_leftovers(self._tag, from_batch, keep)


class _Paimon(Connector):
    name = "paimon"
    summary = "A table of a Paimon warehouse; `CREATE TABLE` without a `connector` creates one."
    capabilities = Capabilities()
    guarantee = "exactly-once"
    guarantee_note = "each micro-batch is one commit, and a batch that runs again finds it"
    scan_note = "the rows of the newest snapshot, or of another one"

    def offset_origin(self, spec: SourceSpec, name: Sequence[str]) -> str:
        # Offsets of a Paimon table contain its identity, which does not depend on its name.
        return self.name

    def source(self, spec: SourceSpec, names: Sequence[str] | None) -> PaimonSource:
        address = spec.address
        assert address is not None
        columns = [column.name for column in spec.columns] if names is None else list(names)
        return PaimonSource(
            address.warehouse, address.identifier, columns, spec.options, address.schema_id
        )

    def sink(self, spec: SinkSpec) -> Sink:
        address, commutes = spec.address, spec.commutes
        assert address is not None
        return Sink(
            partial(sink_writer, address, commutes=commutes),
            lambda query_id: PaimonSinkCommitter(address, query_id, commutes),
        )


CONNECTOR = _Paimon()
