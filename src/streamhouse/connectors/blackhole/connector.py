"""The `blackhole` connector, which measures a query without the cost of its sink."""

import pyarrow as pa

from streamhouse.connectors.base import Connector, Sink, SinkCommitter, WrittenBatch
from streamhouse.connectors.specs import SinkSpec
from streamhouse.sql.plan import Capabilities


class _Blackhole(Connector):
    name = "blackhole"
    summary = "Discards all rows, to measure a query without the cost of its sink."
    without_effect = {"sink.parallelism": "SET 'parallelism.default' sets the number of tasks"}
    guarantee_note = "it keeps no rows"
    capabilities = Capabilities(stream=False, lookup=False, scan=False, merges=False)

    def sink(self, spec: SinkSpec) -> Sink:
        discarder = Discarder()
        return Sink(lambda *_: discarder, lambda _: discarder)


class Discarder(SinkCommitter):
    """Discards rows, as a writer and as a committer."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Discard the rows."""

    def prepare(self) -> list[bytes]:
        return []

    def close(self) -> None:
        """Holds no resources."""

    def put(self, written: WrittenBatch) -> bool:
        return True


CONNECTOR = _Blackhole()
