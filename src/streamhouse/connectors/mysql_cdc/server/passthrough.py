"""Options of Flink CDC that have no effect here, or that would change rows and are rejected.

Flink CDC passes all `debezium.*` on to Debezium and all `jdbc.properties.*` to MySQL's JDBC driver.
Here each of them has an effect (`options.KNOWN`), a reason why it has none, or an error.
"""

from __future__ import annotations

import re

from streamhouse.connectors.mysql_cdc.server.tls import OPTIONS as TLS_OPTIONS
from streamhouse.connectors.mysql_cdc.server.values.dates import OPTION as ZERO_DATES

_SECURITY = re.compile(r"^jdbc.*(ssl|tls|certificate|keystore|truststore)", re.IGNORECASE)
DEBEZIUM, JDBC = "debezium.", "jdbc.properties."
LOCK_TIMEOUT = "debezium.snapshot.lock.timeout.ms"
_OWN = frozenset({LOCK_TIMEOUT, ZERO_DATES})
"""Options of Debezium and JDBC with an effect, besides those of TLS."""
_TLS = frozenset(option.key for option in TLS_OPTIONS)

_CHUNKS = "chunks have a fixed number of rows, in the order of the primary key"
_EXACT = "each row is read exactly once, from the snapshot or the binlog"
_QUEUES = "there is no queue: each batch reads its range of the binlog"
_DECLARED = "a column is read as its declared type"
_FAILS = "what cannot be read always ends the query with an error"
_HISTORY = "offsets and the binlog have the history of a table's columns"
_NAMED = "'database-name' and 'table-name' name the table"
_VERSIONS = "TLS has version 1.2 or later"
_EVENTS = "rows have no envelope of an event; METADATA columns have its parts"
_READS = "this connector only reads"

WITHOUT_EFFECT: dict[str, str] = {
    "connection.pool.size": "each table has one connection while it is read",
    "scan.incremental.snapshot.chunk.key-column": "chunks follow the key, and a table "
    "without a key is read in one transaction",
    "scan.incremental.snapshot.unbounded-chunk-first.enabled": _CHUNKS,
    "scan.incremental.snapshot.backfill.skip": _EXACT,
    "scan.incremental.close-idle-reader.enabled": "readers end with their chunk",
    "use.legacy.json.format": "JSON has the same text in the snapshot and in the binlog",
    "chunk-meta.group.size": _CHUNKS,
    "chunk-key.even-distribution.factor.upper-bound": _CHUNKS,
    "chunk-key.even-distribution.factor.lower-bound": _CHUNKS,
    "split-key.even-distribution.factor.upper-bound": _CHUNKS,
    "split-key.even-distribution.factor.lower-bound": _CHUNKS,
    "jdbc.properties.tinyInt1isBit": _DECLARED,
    "treat-tinyint1-as-boolean.enabled": _DECLARED,
    "schema-change.enabled": "statements that alter a table are followed as far as they can be",
    "include-comments.enabled": "a declared table has its own comments, and a sync copies MySQL's",
    "scan.binlog.newly-added-table.enabled": "'scan.newly-added-table.enabled' reads new tables, "
    "and a sync always does",
    "jdbc.properties.autoReconnect": "a lost connection is always reopened",
    "jdbc.properties.rewriteBatchedStatements": _READS,
    "jdbc.properties.allowPublicKeyRetrieval": "a login without TLS always asks for the key",
    "jdbc.properties.useUnicode": "text is read in its own character set",
    "jdbc.properties.characterEncoding": "text is read in its own character set",
    "jdbc.properties.serverTimezone": "'server-time-zone' sets it",
    "jdbc.properties.connectionTimeZone": "'server-time-zone' sets it",
    "jdbc.properties.connectTimeout": "'connect.timeout' sets it",
    "jdbc.properties.tlsVersions": _VERSIONS,
    "jdbc.properties.enabledTLSProtocols": _VERSIONS,
    "debezium.snapshot.mode": "'scan.startup.mode' says whether there is a snapshot",
    "debezium.snapshot.locking.mode": "only the snapshot of a table without a key takes a "
    "lock, for a short time",
    "debezium.snapshot.fetch.size": _CHUNKS,
    "debezium.min.row.count.to.stream.results": _CHUNKS,
    "debezium.min.row.count.to.stream.result": _CHUNKS,
    "debezium.max.batch.size": _QUEUES,
    "debezium.max.queue.size": _QUEUES,
    "debezium.max.queue.size.in.bytes": _QUEUES,
    "debezium.poll.interval.ms": _QUEUES,
    "debezium.connect.timeout.ms": "'connect.timeout' sets it",
    "debezium.heartbeat.interval.ms": "'heartbeat.interval' sets it",
    "debezium.database.server.id": "'server-id' sets it",
    "debezium.database.serverTimezone": "'server-time-zone' sets it",
    "debezium.decimal.handling.mode": _DECLARED,
    "debezium.time.precision.mode": _DECLARED,
    "debezium.bigint.unsigned.handling.mode": _DECLARED,
    "debezium.event.deserialization.failure.handling.mode": _FAILS,
    "debezium.event.processing.failure.handling.mode": _FAILS,
    "debezium.inconsistent.schema.handling.mode": _FAILS,
    "debezium.include.query": _EVENTS,
    "debezium.include.schema.changes": _EVENTS,
    "debezium.provide.transaction.metadata": _EVENTS,
    "debezium.tombstones.on.delete": _EVENTS,
    "debezium.table.include.list": _NAMED,
    "debezium.table.exclude.list": _NAMED,
    "debezium.database.include.list": _NAMED,
    "debezium.database.exclude.list": _NAMED,
}
"""Options of Flink CDC that have no effect here, and why."""

_PREFIXES = {
    "debezium.database.history.": _HISTORY,
    "debezium.schema.history.internal.": _HISTORY,
    "debezium.signal.": "there are no signals: a script says what is read",
    "debezium.gtid.source.": "the transactions of all servers are read",
    DEBEZIUM: "the binlog is read without Debezium",
    JDBC: "the server is read without JDBC",
}

_SELECT = "write an expression in the SELECT instead"
_CODE = "Java code cannot run here; write an expression in the SELECT instead"
_OURS = "set '{}' instead"
_REFUSED = {
    "tables.exclude": "set another 'table-name', or a sync's --excluding-tables, instead",
    "tables": "set 'database-name' and 'table-name', or a sync's --including-tables, instead",
    "metadata.list": "declare METADATA columns, or give a sync --metadata-column, instead",
    "debezium.skipped.operations": "all changes are read; use WHERE, or another target",
    "debezium.snapshot.select.statement.overrides": "all rows are read; write a WHERE instead",
    "debezium.column.mask.": _SELECT,
    "debezium.column.truncate.": _SELECT,
    "debezium.column.include.list": "declare only the columns to read",
    "debezium.column.exclude.list": "declare only the columns to read",
    "debezium.binary.handling.mode": "binary columns are read as bytes; " + _SELECT,
    "debezium.transforms": _CODE,
    "debezium.predicates": _CODE,
    "debezium.converters": _CODE,
    "debezium.database.hostname": _OURS.format("hostname"),
    "debezium.database.port": _OURS.format("port"),
    "debezium.database.user": _OURS.format("username"),
    "debezium.database.password": _OURS.format("password"),
    "debezium.database.ssl.": "only 'mode', 'ca', 'truststore' and 'keystore' are known of TLS",
}
"""Options that change rows, values or the server: ignoring them would give other results.

A key that ends with a dot, or is followed by one, stands for all that begin so.
"""
_HARMLESS = {
    "debezium.skipped.operations": ("none", "t", ""),
    "debezium.binary.handling.mode": ("none", "bytes"),
}
_ONLY = {
    "schema-change.enabled": (
        ("true",),
        "statements that alter a table are followed; give a sync --schema-change-behavior ignore",
    ),
}
"""Options without effect, with the only values that describe what this connector does."""


def without_effect(key: str) -> str | None:
    """Why an option has no effect here; None if it has one, is unknown or is refused."""
    if key in _TLS or key in _OWN or _refused(key) is not None:
        return None
    if key in WITHOUT_EFFECT:
        return WITHOUT_EFFECT[key]
    if _SECURITY.search(key):
        # Such as a misspelt 'sslMode', without which a connection might not be encrypted.
        return None
    return next((why for prefix, why in _PREFIXES.items() if key.startswith(prefix)), None)


def refusal(key: str, value: str) -> str | None:
    """What to do instead of an option that would change rows, values or the server; else None."""
    if key in _TLS or value.strip().lower() in _HARMLESS.get(key, ()):
        return None
    if key in _ONLY:
        values, instead = _ONLY[key]
        return None if value.strip().lower() in values else f"{instead} (it is '{value}')"
    found = _refused(key)
    return None if found is None else _REFUSED[found]


def _refused(key: str) -> str | None:
    for known in _REFUSED:
        if key == known or key.startswith(known if known.endswith(".") else f"{known}."):
            return known
    return None
