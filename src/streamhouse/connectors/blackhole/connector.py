"""The `blackhole` connector, which measures a query without the cost of its sink."""

from __future__ import annotations

import pyarrow as pa

from streamhouse.connectors.base import Connector, SinkCommitter, WrittenBatch
from streamhouse.connectors.specs import SinkSpec
from streamhouse.sql.plan import Capabilities


class _Blackhole(Connector):
    name = "blackhole"
    summary = "Discards all rows, to measure a query without the cost of its sink."
    without_effect = {"sink.parallelism": "SET 'parallelism.default' sets the number of tasks"}
    guarantee_note = "it keeps no rows"
    capabilities = Capabilities(stream=False, lookup=False, scan=False, merges=False)

    def sink(self, spec: SinkSpec) -> BlackholeSink:
        return BlackholeSink(spec.arrow_schema)


class BlackholeSink(SinkCommitter):
    """A `Sink` that discards rows; also its own writer and committer."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def writer(self, query_id: str, batch: int, attempt: str) -> BlackholeSink:
        return self

    def committer(self, query_id: str) -> BlackholeSink:
        return self

    def write(self, rows: pa.RecordBatch) -> None:
        """Discard the rows."""

    def prepare(self) -> list[bytes]:
        return []

    def close(self) -> None:
        """Holds no resources."""

    def put(self, written: WrittenBatch) -> bool:
        return True


CONNECTOR = _Blackhole()
