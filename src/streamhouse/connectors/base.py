"""What a connector is: its options, what its tables can do, and how sources and sinks open."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import pyarrow as pa

from streamhouse.errors import OptionError
from streamhouse.options import check_known
from streamhouse.source import Offset, Source
from streamhouse.sql.plan import Capabilities, TableInfo

if TYPE_CHECKING:
    from streamhouse.connectors.specs import SinkSpec, SourceSpec
    from streamhouse.paimon.read.table import Table

Guarantee: TypeAlias = Literal["exactly-once", "at-least-once", "none"]
"""How often a sink has each row after a crash; `none`: it keeps none."""
Scan: TypeAlias = tuple[pa.Schema, Callable[[], Iterator[pa.RecordBatch]]]
"""The rows of a table as it is now: their columns, and what reads them, each time anew."""


@dataclass(frozen=True)
class Option:
    """One option of a connector's tables, from which docs and errors are made.

    `type` is a word of the docs: `STRING`, `INT`, `BOOLEAN`, `DURATION`, `MEMORY SIZE`, or the
    allowed values. `key` may hold `<column>` for the name of a column. `doc` is Markdown.
    """

    key: str
    type: str
    doc: str
    default: str | None = None
    required: bool = False


@dataclass(frozen=True)
class WrittenBatch:
    """What the tasks of a micro-batch returned for a sink: the messages of their writers."""

    number: int
    messages: list[bytes]


class SinkWriter(Protocol):
    """Writes the rows of one task; executors."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Take rows, with the sink's columns and, of a changelog, a last column `rowkind`."""

    def prepare(self) -> list[bytes]:
        """Finish; what the committer needs to know."""

    def close(self) -> None:
        """Release what the writer holds, also if it has failed."""


class SinkCommitter(Protocol):
    """Makes micro-batches visible; driver only."""

    @property
    def table(self) -> Table | None:
        """The Paimon table, where the sink is one: it is kept compact."""

    def commit(self, write: Callable[[], WrittenBatch | None], discard: Callable[[], None]) -> bool:
        """Have a micro-batch written, and commit it; False if it was committed before.

        `write` runs its tasks; None if there was nothing to read. A committer whose table was
        changed meanwhile calls `discard`, then `write` again.
        """

    def remove_leftovers(self, from_batch: int, keep: Collection[str] = ()) -> int:
        """Remove what dead tasks of the batches from `from_batch` on have left; how many files.

        `keep` are the attempts that have been committed.
        """


class Sink(Protocol):
    """Where a continuous query writes. A batch that is cut off is written again with its number."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows, without the row kind."""

    def writer(self, query_id: str, batch: int, attempt: str) -> SinkWriter:
        """A writer for one task; executors."""

    def committer(self, query_id: str) -> SinkCommitter:
        """The committer of a query; driver."""


class Following(Protocol):
    """A continuous query, as far as what its source shares with others is concerned."""

    @property
    def source(self) -> SourceSpec: ...

    @property
    def checkpoint_path(self) -> Path: ...

    @property
    def last_offset(self) -> Offset: ...

    def use_shared(self, folder: Path) -> None:
        """Have the source read from a folder that a `SharedReader` fills."""


class SharedReader(Protocol):
    """Reads once for all queries of a pipeline what their sources have in common; driver only."""

    def start(self, queries: Sequence[Following]) -> None:
        """Begin; before the queries are prepared."""

    def step(self) -> None:
        """Raise what has failed; drop what no query needs any more."""

    def close(self) -> None:
        """End."""


class Connector:
    """Tables of one kind: `CREATE TABLE … WITH ('connector' = '…')`.

    A subclass says what its tables can do by `capabilities`, and overrides the methods that go
    with it; the others raise `OptionError`.
    """

    name: str
    summary: str
    """One sentence for the docs."""
    options: tuple[Option, ...] = ()
    without_effect: Mapping[str, str] = {}
    """Options that are accepted and change nothing, each with the reason."""
    capabilities: Capabilities
    guarantee: Guarantee = "none"
    """Of its sink."""
    scan_note: str = ""
    """For the docs: what a bounded SELECT reads; empty if it reads none."""

    def check(self, table: TableInfo, options: Mapping[str, str], where: str) -> None:
        """Raise `OptionError` for options, or columns, that a declaration cannot have.

        `options` are without `connector` and those that have no effect.
        """
        known = [option.key for option in self.options]
        check_known(options, known, where)
        for option in self.options:
            if option.required and option.key not in options:
                raise OptionError(f"{where}: option '{option.key}' is missing; {option.doc}")

    def offset_origin(self, spec: SourceSpec, name: Sequence[str]) -> str:
        """What offsets are offsets of; a query that finds another origin does not go on.

        `name` is the table's full name in the script.
        """
        return f"{self.name} {'.'.join(name)}"

    def source(self, spec: SourceSpec, names: Sequence[str] | None) -> Source:
        """The stream of a table; `names` are the columns needed, where others can be left out."""
        raise OptionError(f"connector '{self.name}' cannot be read as a stream")

    def scan(self, table: TableInfo, options: Mapping[str, str], columns: Sequence[str]) -> Scan:
        """The rows of a table as it is now."""
        raise OptionError(f"connector '{self.name}' cannot be read")

    def sink(self, spec: SinkSpec) -> Sink:
        """Where rows are written."""
        raise OptionError(f"connector '{self.name}' cannot be written")

    def shared_reader(self) -> SharedReader | None:
        """What reads for several queries at once; None if each reads for itself."""
        return None
