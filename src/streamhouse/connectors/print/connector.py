"""The `print` connector."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

import pyarrow as pa

from streamhouse.connectors.base import Connector, Option, SinkCommitter, WrittenBatch
from streamhouse.connectors.collected_rows import CollectingWriter, collected_rows
from streamhouse.connectors.print.row_text import row_texts
from streamhouse.connectors.specs import SinkSpec
from streamhouse.options import boolean
from streamhouse.sql.plan import Capabilities, TableInfo

_IDENTIFIER = "print-identifier"
_STDERR = "standard-error"


class _Print(Connector):
    name = "print"
    summary = "Prints each row as a line on standard output, such as `+I[7, Kenya]`."
    options = (
        Option(_IDENTIFIER, "STRING", "a prefix of each row: `identifier> +I[7, Kenya]`"),
        Option(_STDERR, "BOOLEAN", "write to standard error instead", "false"),
    )
    without_effect = {"sink.parallelism": "the driver prints all rows of a micro-batch"}
    capabilities = Capabilities(stream=False, lookup=False, scan=False, merges=False)
    guarantee = "at-least-once"
    guarantee_note = "a batch that runs again is printed again"

    def check(self, table: TableInfo, options: Mapping[str, str], where: str) -> None:
        super().check(table, options, where)
        boolean(_STDERR, options.get(_STDERR, "false"))

    def sink(self, spec: SinkSpec) -> PrintSink:
        prefix = spec.options.get(_IDENTIFIER, "")
        to_stderr = boolean(_STDERR, spec.options.get(_STDERR, "false"))
        return PrintSink(spec.arrow_schema, f"{prefix}> " if prefix else "", to_stderr)


class PrintSink:
    """Prints rows as lines. All rows pass through the driver, so it is not for large results."""

    def __init__(self, schema: pa.Schema, prefix: str, to_stderr: bool) -> None:
        self.schema = schema
        self._prefix = prefix
        self._to_stderr = to_stderr

    def writer(self, query_id: str, batch: int, attempt: str) -> CollectingWriter:
        return CollectingWriter()

    def committer(self, query_id: str) -> PrintCommitter:
        return PrintCommitter(self._prefix, self._to_stderr)


class PrintCommitter(SinkCommitter):
    """Prints a micro-batch once its tasks have ended. A replayed batch is printed again."""

    def __init__(self, prefix: str, to_stderr: bool) -> None:
        self._prefix = prefix
        self._to_stderr = to_stderr

    def commit(self, write: Callable[[], WrittenBatch | None], discard: Callable[[], None]) -> bool:
        written = write()
        if written is None:
            return False
        out = sys.stderr if self._to_stderr else sys.stdout
        for batch in collected_rows(written.messages):
            out.write("".join(f"{self._prefix}{text}\n" for text in row_texts(batch)))
        out.flush()
        return True


CONNECTOR = _Print()
