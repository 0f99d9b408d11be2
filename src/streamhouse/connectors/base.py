"""The interfaces of connectors: options, capabilities, sources and sinks."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import pyarrow as pa

from streamhouse.arrow_batches import gathered
from streamhouse.errors import DataLossError, OptionError
from streamhouse.options import DeclaredOptions, OptionValues, no_effect
from streamhouse.options import Metadata as Metadata
from streamhouse.options import Option as Option
from streamhouse.source import ROW_KIND, Offset, Source
from streamhouse.sql.plan import Capabilities, TableInfo

if TYPE_CHECKING:
    from streamhouse.connectors.mysql_cdc.relay.relay import Relays
    from streamhouse.connectors.specs import SinkSpec, SourceSpec
    from streamhouse.paimon.read.table import Table


Guarantee: TypeAlias = Literal["exactly-once", "at-least-once", "none"]
"""The delivery guarantee of a sink after a crash; `none`: the sink keeps no rows."""
Scan: TypeAlias = tuple[pa.Schema, Callable[[], Iterator[pa.RecordBatch]]]
"""A bounded read of a table: its schema, and a function that reads it again on each call."""


_PAUSE_S = 0.05
_MESSAGE_BYTES = 32 << 20
"""The least bytes of a message, other than the last one of a task."""
_BAD_RECORDS_LOG = logging.getLogger("streamhouse.bad_records")


@dataclass(frozen=True)
class Delivery:
    """What a sink guarantees after a crash, and by what; `how` is Markdown without a full stop."""

    guarantee: Guarantee
    how: str

    def __str__(self) -> str:
        return f"{self.guarantee}: {self.how}" if self.how else self.guarantee


Message: TypeAlias = bytes | pa.Table
"""What a writer sends to the committer: rows if the committer writes them, else bytes."""


@dataclass(frozen=True)
class WrittenBatch:
    """A micro-batch that tasks have written into a sink: the commit messages of its writers."""

    number: int
    messages: Sequence[Message]


@dataclass(frozen=True)
class BatchLog:
    """The log of a query's batches: the `folder` of its checkpoint, and the `last` batch in it.

    A sink skips the batches that it has. That is right only for those in the log: the others would
    be planned anew, with other rows.
    """

    folder: Path
    last: int

    def check(self, recorded: int, sink: str) -> None:
        """Raise `DataLossError` if the `sink` has a later batch than the log."""
        if recorded > self.last:
            raise DataLossError(
                f"{sink} has batch {recorded} of the query in {self.folder}, whose log ends at "
                f"{f'batch {self.last}' if self.last >= 0 else 'its beginning'}: this folder is an "
                "older copy, or its newest files were lost. Put the newest copy of the folder "
                "back, or run the script once with --from-scratch to compute its targets anew"
            )


class SinkWriter(Protocol):
    """Writes the rows of one task; runs on executors."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Write rows with the sink's columns and, for a changelog, a last column `rowkind`."""

    def prepare(self) -> Sequence[Message]:
        """Finish writing; returns commit messages for the committer."""

    def close(self) -> None:
        """Release the writer's resources; called after a failure, too."""


class SinkCommitter:
    """Commits micro-batches, which makes them visible; driver only.

    A sink overrides `put`, or `commit` if commits of others can outdate what was written. It
    overrides `check_log` and `forget` if it records the number of the last batch,
    `remove_leftovers` if its tasks leave files, and `close` if it keeps connections.
    """

    @property
    def table(self) -> Table | None:
        """The sink's Paimon table, for backpressure by its level-0 files; None for other sinks."""
        return None

    def commit(self, write: Callable[[], WrittenBatch | None], discard: Callable[[], None]) -> bool:
        """Write a micro-batch and commit it; False if it was already committed, or was empty.

        `write` runs the batch's tasks; it returns None if there was nothing to read. If other
        commits outdate what was written, the committer calls `discard`, then `write` again.
        """
        written = write()
        return written is not None and self.put(written)

    def put(self, written: WrittenBatch) -> bool:
        """Commit a micro-batch that its tasks have written; False if it was already committed."""
        raise NotImplementedError

    def check_log(self, log: BatchLog) -> None:
        """Check that the recorded batch is in the query's log; at the latest before a commit.

        Called before the first batch of a run. Raises `DataLossError`, as `log.check` does.
        """

    def remove_leftovers(self, from_batch: int, keep: Collection[str] = ()) -> int:
        """Delete the files of dead tasks, of batches from `from_batch` on; returns how many.

        `keep`: the attempts that have been committed.
        """
        return 0

    def forget(self) -> None:
        """Remove what it has recorded of the query, which has ended for good, or has failed."""

    def close(self) -> None:
        """Release connections: no batch follows."""


@dataclass(frozen=True)
class Sink:
    """Where a continuous query writes. An interrupted batch is replayed with the same number.

    `writer` makes that of one task, by the query's id, the batch's number and the task's attempt;
    called on executors. `committer` makes that of a query by its id; called on the driver. `insert`
    writes the rows of a bounded INSERT, by an id that is used only once, and returns when they are
    committed; None: they are one micro-batch.
    """

    writer: Callable[[str, int, str], SinkWriter]
    committer: Callable[[str], SinkCommitter]
    insert: Callable[[str, Iterator[pa.RecordBatch]], None] | None = None


class SharingSource(Protocol):
    """What a shared reader (`Relays`) needs of one source of a continuous query."""

    @property
    def source_spec(self) -> SourceSpec | None: ...

    @property
    def checkpoint_path(self) -> Path:
        """The folder of the query's checkpoint."""

    @property
    def last_offset(self) -> Offset:
        """The source's offset after the last committed batch; `{}` before the first."""

    def use_shared(self, folder: Path) -> None:
        """Make the source read from a folder that a shared reader fills."""


class Connector:
    """The tables of one kind: `CREATE TABLE … WITH ('connector' = '…')`.

    A subclass sets `name`, `summary` and `capabilities` (what its tables can do), and overrides a
    method for each capability: `source` for `stream`, `scan` for `scan`, `sink` for `sink`. Those
    that it does not override raise `OptionError`. `declared` has those of its attributes that its
    `options.toml` sets.
    """

    name: str
    """As in `'connector' = '…'`: the name of its folder, with `-` for `_`."""
    summary: str
    """One sentence for the docs."""
    options: tuple[Option, ...] = ()
    without_effect: Mapping[str, str] = {}
    """Options that are accepted but have no effect, each with the reason; `*` is any ending."""
    metadata: tuple[Metadata, ...] = ()
    """What METADATA columns of its tables can hold."""
    capabilities: Capabilities
    guarantee: Guarantee = "none"
    """The delivery guarantee of its sink."""
    guarantee_note: str = ""
    """For the docs and EXPLAIN: by what the sink guarantees it, or under which conditions."""
    takes: str = "all changes"
    """For the docs: which changes its sink takes."""
    batch_rows: int | None = None
    """The most rows of a micro-batch, for a sink whose rows pass through the driver."""
    scan_note: str = ""
    """For the docs: what a bounded SELECT reads; empty if it reads none."""

    def __init_subclass__(cls, declared: DeclaredOptions | None = None) -> None:
        own = {} if declared is None else {**vars(declared), **declared.connector}
        for name in (own.keys() & Connector.__annotations__.keys()) - vars(cls).keys():
            if own[name]:
                setattr(cls, name, own[name])

    def capabilities_of(self, options: Mapping[str, str]) -> Capabilities:
        """What a table with these options can do; they have not been checked yet."""
        return self.capabilities

    def no_effect(self, key: str) -> str | None:
        """Why an option is accepted but has no effect; None for other options."""
        return no_effect(key, self.without_effect)

    def check(self, table: TableInfo, options: Mapping[str, str], where: str) -> None:
        """Raise `OptionError` for options or columns that a declared table cannot have.

        `options` excludes `connector` and the options without effect. An override that checks
        columns, or options together, calls this one first.
        """
        OptionValues(self.options, options).check(where)

    def delivery(self, table: TableInfo, options: Mapping[str, str]) -> Delivery:
        """What the sink of this table guarantees; connects to nothing."""
        return Delivery(self.guarantee, self.guarantee_note)

    def refused_changes(self, table: TableInfo) -> str | None:
        """Why updates and deletes cannot be written, and what to do; None if they can."""
        return None

    def offset_origin(self, spec: SourceSpec, name: Sequence[str]) -> str:
        """The identity of what the offsets belong to; a query does not resume if it has changed.

        `name` is the table's full name in the script, which is the default: override it if an
        option, such as a path or a host, decides what the offsets mean.
        """
        return f"{self.name} {'.'.join(name)}"

    def source(self, spec: SourceSpec, names: Sequence[str] | None) -> Source:
        """The table as a stream; `names`: the columns needed (None: all), if it can prune.

        `spec.columns` are the columns of the table, `spec.options` its options with the secrets
        that they refer to. The driver calls it, and each Python worker once.
        """
        raise OptionError(f"connector '{self.name}' cannot be read as a stream")

    def scan(self, table: TableInfo, options: Mapping[str, str], columns: Sequence[str]) -> Scan:
        """A bounded read of the table's current rows: exactly `columns`, in this order."""
        raise OptionError(f"connector '{self.name}' cannot be read")

    def sink(self, spec: SinkSpec) -> Sink:
        """The sink that writes into the table."""
        raise OptionError(f"connector '{self.name}' cannot be written")

    def shared_reader(self) -> Relays | None:
        """A reader that several queries share; None if each query reads for itself."""
        return None


class CollectingWriter:
    """A `SinkWriter` that sends rows to the driver."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []

    def write(self, rows: pa.RecordBatch) -> None:
        self._batches.append(rows)

    def prepare(self) -> list[pa.Table]:
        groups = gathered(self._batches, sys.maxsize, _MESSAGE_BYTES)
        return [pa.Table.from_batches(group) for group in groups]

    def close(self) -> None:
        self._batches = []


def collected_rows(messages: Sequence[pa.Table]) -> Iterator[pa.RecordBatch]:
    """The rows in the messages of a batch's tasks, in order."""
    for rows in messages:
        yield from rows.to_batches()


def scanned(
    source: Source,
    columns: Sequence[str],
    partitions: Callable[[], Iterable[Any]] | None = None,
) -> Scan:
    """A bounded read of some columns of a source; warns of the bad records that it leaves out.

    `partitions` returns what is read; without it, all up to the end of the source, which it has.
    """

    def read() -> Iterator[pa.RecordBatch]:
        bad = 0
        try:
            for partition in partitions_to_end(source) if partitions is None else partitions():
                for batch in source.read(partition):
                    yield batch.select(list(columns))
                bad += source.bad_records().num_rows
        finally:
            warn_of_bad_records(bad)
            source.close()

    kind = pa.field(ROW_KIND, pa.string())
    schema = source.schema.append(kind) if source.changelog else source.schema
    return pa.schema([schema.field(name) for name in columns]), read


def warn_of_bad_records(count: int) -> None:
    """Warn of the bad records of a SELECT, which no dead-letter table gets."""
    if count:
        _BAD_RECORDS_LOG.warning("%d bad records were left out of this SELECT", count)


def partitions_to_end(source: Source, parallelism: int = 1) -> Iterator[Any]:
    """The partitions of a source from its beginning to its end, which it has."""
    offset = source.initial_offset()
    while True:
        end = source.latest_offset(offset)
        yield from source.partitions(offset, end, parallelism)
        if source.finished(end):
            return
        if end == offset:
            time.sleep(_PAUSE_S)
        offset = end
