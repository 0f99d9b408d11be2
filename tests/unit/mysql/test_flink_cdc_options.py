"""Every option of Flink CDC's MySQL connector works, has no effect for a reason, or is refused."""

from __future__ import annotations

import pytest

from streamhouse.connectors.registry import check_declaration, declared
from streamhouse.errors import OptionError
from streamhouse.mysql.options import KNOWN, WITHOUT_EFFECT, parse
from streamhouse.sql.plan import TableInfo

BASE = {
    "hostname": "db",
    "username": "u",
    "password": "s3cret",
    "database-name": "shop",
    "table-name": "customers",
}
_SPECIFIC = {"scan.startup.mode": "specific-offset"}
_PLACE = {"scan.startup.specific-offset.file": "b.1", "scan.startup.specific-offset.pos": "4"}

WORKING: dict[str, dict[str, str]] = {
    "port": {"port": "3307"},
    "server-time-zone": {"server-time-zone": "UTC"},
    "server-id": {"server-id": "5400-5408"},
    "scan.incremental.snapshot.enabled": {"scan.incremental.snapshot.enabled": "false"},
    "scan.incremental.snapshot.chunk.size": {"scan.incremental.snapshot.chunk.size": "9"},
    "scan.snapshot.fetch.size": {"scan.snapshot.fetch.size": "9"},
    "connect.timeout": {"connect.timeout": "9 s"},
    "connect.max-retries": {"connect.max-retries": "9"},
    "scan.startup.mode": {"scan.startup.mode": "latest-offset"},
    "scan.startup.specific-offset.file": _SPECIFIC | _PLACE,
    "scan.startup.specific-offset.pos": _SPECIFIC | _PLACE,
    "scan.startup.specific-offset.gtid-set": _SPECIFIC
    | {"scan.startup.specific-offset.gtid-set": "0-1-9"},
    "scan.startup.specific-offset.skip-events": _SPECIFIC
    | _PLACE
    | {"scan.startup.specific-offset.skip-events": "1"},
    "scan.startup.specific-offset.skip-rows": _SPECIFIC
    | _PLACE
    | {"scan.startup.specific-offset.skip-rows": "1"},
    "scan.startup.timestamp-millis": {
        "scan.startup.mode": "timestamp",
        "scan.startup.timestamp-millis": "1",
    },
    "debezium.snapshot.lock.timeout.ms": {"debezium.snapshot.lock.timeout.ms": "9000"},
    "heartbeat.interval": {"heartbeat.interval": "9 s"},
    "scan.read-changelog-as-append-only.enabled": {
        "scan.read-changelog-as-append-only.enabled": "true"
    },
    "scan.parse.online.schema.changes.enabled": {
        "scan.parse.online.schema.changes.enabled": "true"
    },
    "jdbc.properties.zeroDateTimeBehavior": {"jdbc.properties.zeroDateTimeBehavior": "ROUND"},
    "jdbc.properties.useSSL": {"jdbc.properties.useSSL": "false"},
    "jdbc.properties.sslMode": {"jdbc.properties.sslMode": "REQUIRED"},
    "jdbc.properties.requireSSL": {"jdbc.properties.requireSSL": "true"},
    "jdbc.properties.verifyServerCertificate": {"jdbc.properties.verifyServerCertificate": "true"},
    "debezium.database.ssl.mode": {"debezium.database.ssl.mode": "verify_ca"},
}
"""Those with an effect, or whose values are checked at least."""

ZERO_DATES = "jdbc.properties.zeroDateTimeBehavior"
NO_EFFECT = """
connection.pool.size chunk-meta.group.size
chunk-key.even-distribution.factor.upper-bound chunk-key.even-distribution.factor.lower-bound
scan.incremental.snapshot.chunk.key-column
scan.incremental.close-idle-reader.enabled scan.incremental.snapshot.backfill.skip
use.legacy.json.format include-comments.enabled treat-tinyint1-as-boolean.enabled
scan.binlog.newly-added-table.enabled
scan.incremental.snapshot.unbounded-chunk-first.enabled
jdbc.properties.tinyInt1isBit jdbc.properties.autoReconnect jdbc.properties.useUnicode
jdbc.properties.characterEncoding
jdbc.properties.allowPublicKeyRetrieval jdbc.properties.rewriteBatchedStatements
jdbc.properties.serverTimezone jdbc.properties.connectTimeout jdbc.properties.socketTimeout
jdbc.properties.useCursorFetch jdbc.properties.sessionVariables jdbc.properties.tlsVersions
debezium.snapshot.mode debezium.snapshot.locking.mode debezium.snapshot.fetch.size
debezium.snapshot.delay.ms debezium.snapshot.new.tables
debezium.min.row.count.to.stream.result debezium.min.row.count.to.stream.results
debezium.decimal.handling.mode debezium.time.precision.mode debezium.bigint.unsigned.handling.mode
debezium.include.schema.changes debezium.include.query debezium.tombstones.on.delete
debezium.event.deserialization.failure.handling.mode debezium.inconsistent.schema.handling.mode
debezium.event.processing.failure.handling.mode debezium.max.batch.size debezium.max.queue.size
debezium.max.queue.size.in.bytes debezium.poll.interval.ms debezium.connect.timeout.ms
debezium.connect.keep.alive debezium.connect.keep.alive.interval.ms debezium.binlog.buffer.size
debezium.gtid.source.includes debezium.gtid.source.excludes debezium.gtid.source.filter.dml.events
debezium.table.include.list debezium.table.exclude.list debezium.table.ignore.builtin
debezium.database.include.list debezium.database.exclude.list debezium.database.server.name
debezium.database.server.id debezium.database.history debezium.database.initial.statements
debezium.database.history.kafka.topic debezium.database.history.skip.unparseable.ddl
debezium.database.history.store.only.captured.tables.ddl debezium.database.serverTimezone
debezium.heartbeat.interval.ms debezium.heartbeat.topics.prefix debezium.heartbeat.action.query
debezium.message.key.columns debezium.column.propagate.source.type
debezium.datatype.propagate.source.type debezium.enable.time.adjuster
debezium.sanitize.field.names debezium.signal.data.collection debezium.source.struct.version
debezium.provide.transaction.metadata debezium.retriable.restart.connector.wait.ms
debezium.incremental.snapshot.chunk.size debezium.read.only debezium.no.such.option
""".split()
"""Options with no effect, and a notice that says why."""

REFUSED = {
    "tables": "shop.*",
    "tables.exclude": "shop.log",
    "metadata.list": "op_ts",
    "debezium.skipped.operations": "d",
    "debezium.snapshot.select.statement.overrides": "shop.customers",
    "debezium.snapshot.select.statement.overrides.shop.customers": "SELECT 1",
    "debezium.column.mask.with.12.chars": "shop.customers.name",
    "debezium.column.mask.hash.SHA-256.with.salt.x": "shop.customers.name",
    "debezium.column.truncate.to.20.chars": "shop.customers.name",
    "debezium.column.include.list": "shop.customers.id",
    "debezium.column.exclude.list": "shop.customers.name",
    "debezium.binary.handling.mode": "base64",
    "debezium.transforms": "unwrap",
    "debezium.transforms.unwrap.type": "x",
    "debezium.converters": "x",
    "debezium.database.hostname": "other",
    "debezium.database.password": "hidden",
    "debezium.database.ssl.cipher": "x",
}
"""Options that would change rows, values or the server."""


def _table(extra: dict[str, str]) -> TableInfo:
    options = {"connector": "mysql-cdc", **BASE, **extra}
    return TableInfo(("c", "d", "t"), (), options=options, connector="mysql-cdc")


@pytest.mark.parametrize("key", [*BASE, *WORKING])
def test_working(key: str) -> None:
    assert key in KNOWN and key not in WITHOUT_EFFECT
    assert check_declaration(_table(WORKING.get(key, {})), "table t") == []


@pytest.mark.parametrize("key", NO_EFFECT)
def test_without_effect(key: str) -> None:
    (notice,) = check_declaration(_table({key: "1"}), "table t")
    assert notice.startswith(f"table t: option '{key}' has no effect here: ")
    assert parse(BASE | {key: "1"}) == parse(BASE)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("CONVERT_TO_NULL", "CONVERT_TO_NULL"),
        ("convertToNull", "CONVERT_TO_NULL"),
        ("ROUND", "ROUND"),
        ("round", "ROUND"),
        ("Round", "ROUND"),
        ("EXCEPTION", "EXCEPTION"),
        ("exception", "EXCEPTION"),
    ],
)
def test_zero_dates_have_the_values_of_connector_j(value: str, expected: str) -> None:
    assert parse(BASE | {ZERO_DATES: value}).zero_dates == expected
    assert parse(BASE).zero_dates == "CONVERT_TO_NULL"


def test_other_values_for_zero_dates_are_errors() -> None:
    with pytest.raises(OptionError, match="'nearest' is not one of CONVERT_TO_NULL, ROUND, EXC"):
        parse(BASE | {ZERO_DATES: "nearest"})


def test_schema_changes_cannot_be_switched_off_in_the_source() -> None:
    parse(BASE | {"schema-change.enabled": "true"})
    with pytest.raises(OptionError, match="--schema-change-behavior ignore"):
        parse(BASE | {"schema-change.enabled": "false"})


@pytest.mark.parametrize("key", REFUSED)
def test_refused(key: str) -> None:
    with pytest.raises(OptionError, match=f"option '{key}' is not supported: ") as caught:
        check_declaration(_table({key: REFUSED[key]}), "table t")
    assert "hidden" not in str(caught.value)


def test_each_reason_is_of_a_listed_option() -> None:
    listed = {*NO_EFFECT, *(key.replace("chunk-key.", "split-key.") for key in NO_EFFECT)}
    assert {key for key in WITHOUT_EFFECT if not key.endswith("*")} - listed == {
        # Of Flink CDC's pipelines; only some values are accepted.
        "schema-change.enabled",
        # Other spellings of listed ones.
        "jdbc.properties.connectionTimeZone",
        "jdbc.properties.enabledTLSProtocols",
    }


def test_the_default_of_a_refused_option_is_accepted() -> None:
    assert parse(BASE | {"debezium.binary.handling.mode": "bytes"}) == parse(BASE)
    assert parse(BASE | {"debezium.skipped.operations": "none"}) == parse(BASE)


def test_a_misspelt_option_of_tls_is_unknown() -> None:
    """A notice would not be enough: the connection might not be encrypted."""
    with pytest.raises(OptionError, match="did you mean 'jdbc.properties.sslMode'"):
        parse(BASE | {"jdbc.properties.sslmode": "VERIFY_IDENTITY"})


def test_append_only_tables_are_no_changelogs() -> None:
    assert declared(_table({})).changelog
    assert not declared(_table({"scan.read-changelog-as-append-only.enabled": "true"})).changelog
