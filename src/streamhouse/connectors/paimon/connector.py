"""The `paimon` connector; the catalog (`paimon.catalog`) checks the declarations of its tables."""

from __future__ import annotations

from collections.abc import Sequence

from streamhouse.connectors.base import Connector
from streamhouse.connectors.paimon.sink import PaimonSink
from streamhouse.connectors.specs import SinkSpec, SourceSpec
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.sql.plan import Capabilities


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

    def sink(self, spec: SinkSpec) -> PaimonSink:
        assert spec.address is not None
        return PaimonSink(spec.address, spec.commutes)


CONNECTOR = _Paimon()
