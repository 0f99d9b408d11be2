"""TLS to a real server: snapshot, binlog and lookups are encrypted, and errors name their cause."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.conftest import Installed
from tests.integration.mysql.certificates import Authority, openssl
from tests.integration.mysql.history import Database, catch_up, rows_of
from tests.mysql_server import IS_MYSQL, Server
from tests.waiting import DEADLINE_S, until

from streamhouse.connectors.jdbc.options import parse as parse_jdbc
from streamhouse.connectors.jdbc.reader import JdbcReader
from streamhouse.connectors.mysql_cdc.binlog import dump as dump_module
from streamhouse.connectors.mysql_cdc.binlog.dump import BinlogDump
from streamhouse.connectors.mysql_cdc.binlog.format.events import HEADER
from streamhouse.connectors.mysql_cdc.relay.relay import Relay
from streamhouse.connectors.mysql_cdc.source import MySqlSource
from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB
from streamhouse.errors import ConnectError, OptionError
from streamhouse.mysql.connection import Session
from streamhouse.mysql.options import parse

SECURE = "require_secure_transport"


class Secured:
    """A server with TLS for the host `localhost` only, its authority and a client of it."""

    def __init__(self, folder: Path, server: MariaDB, authority: Authority) -> None:
        self.folder, self.server, self.authority = folder, server, authority
        self.ca = str(authority.certificate)
        self.client = [str(path) for path in authority.sign("client")]
        self.stranger = [str(path) for path in Authority(folder, "other").sign("stranger")]

    def user(self, name: str, requirement: str) -> dict[str, str]:
        """Options for a user who has to meet this requirement."""
        self.server.execute(
            f"CREATE OR REPLACE USER {name}@'%' IDENTIFIED BY '{PASSWORD}' {requirement}",
            f"GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO {name}@'%'",
        )
        return {"username": name}


@pytest.fixture(scope="module")
def secured(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder, "ca")
    certificate, key = authority.sign("server", "DNS:localhost")
    options = [f"--ssl-{name}={path}" for name, path in [("cert", certificate), ("key", key)]]
    options.append(f"--ssl-ca={authority.certificate}")
    with Server(installed(folder / "server"), server_options=options) as server:
        yield Secured(folder, server, authority)


@pytest.fixture
def table(secured: Secured) -> Iterator[Database]:
    database = Database(secured.server)
    database.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    yield database
    database.close()


def _refusal(database: Database, **options: str) -> str:
    """The message of a login that must fail, and at once: a retry would not help."""
    extra = {"connect.max-retries": "100"} | options
    with pytest.raises(ConnectError) as caught:
        MySqlSource(database.options("t", **extra))
    text = str(caught.value)
    assert len(text.splitlines()) == 1 and PASSWORD not in text.replace(USER, "")
    return text


def test_both_phases_and_the_relay_use_tls(
    secured: Secured, table: Database, tmp_path: Path
) -> None:
    """A user whom the server refuses without a client certificate reads rows and changes."""
    extra = secured.user("certified", "REQUIRE X509") | {
        "hostname": "localhost",
        "ssl.mode": "verify-identity",
        "ssl.ca": secured.ca,
        "ssl.cert": secured.client[0],
        "ssl.key": secured.client[1],
    }
    source = table.source("t", options=extra)
    offset, rows = catch_up(source, source.initial_offset())
    assert [row["id"] for row in rows] == [1]
    table.run("INSERT INTO t VALUES (2)")
    offset, rows = catch_up(source, offset)
    assert [row["id"] for row in rows] == [2]

    folder = tmp_path / "relay"
    folder.mkdir()
    relay = Relay(parse(table.options("t", **extra)), [(table.name, "t")], folder)
    relay.start()
    try:
        shared = table.source("t", options=extra, relay=folder)
        table.run("INSERT INTO t VALUES (3)")
        _, rows = catch_up(shared, offset)
        assert relay.error is None and [row["id"] for row in rows] == [3]
    finally:
        relay.close()


def arrived(connection: socket.socket) -> int:
    """How many bytes a connection has to read, without waiting for more."""
    count = fcntl.ioctl(connection, termios.FIONREAD, bytes(4))
    return int.from_bytes(count, sys.byteorder)


def read(dump: BinlogDump, end: int) -> list[int]:
    """The sizes of the blocks up to a position."""
    sizes, reached = list[int](), 0
    while reached < end:
        block, at = dump.block(), 0
        sizes.append(len(block))
        while at < len(block):
            _, _, _, size, reached, _ = HEADER.unpack_from(block, at)
            at += size
    return sizes


@pytest.mark.parametrize("mode", ["disabled", "required"])
def test_changes_that_have_arrived_are_read_at_once(table: Database, mode: str) -> None:
    """A read by TLS returns one record, of perhaps one transaction, and a relay pauses after it."""
    options = parse(table.options("t", **{"ssl.mode": mode}))
    start = table.end()
    dump = BinlogDump(options, start)
    try:
        for number in range(2, 202):
            table.run(f"INSERT INTO t VALUES ({number})")
        end = table.end().pos
        with contextlib.closing(BinlogDump(options, start)) as other:
            size = sum(read(other, end))
        until(lambda: arrived(dump._socket) >= size)
        assert len(read(dump, end)) < 20
    finally:
        dump.close()


@pytest.mark.parametrize("mode", ["disabled", "required"])
def test_a_relay_that_waits_for_changes_stops_at_once(
    table: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    settings = dump_module._SETTINGS.replace("= 1000000000", f"= {10**15}")
    assert settings != dump_module._SETTINGS
    monkeypatch.setattr(dump_module, "_SETTINGS", settings)
    options = parse(table.options("t", **{"ssl.mode": mode}))
    relay = Relay(options, [(table.name, "t")], tmp_path)
    relay.start()
    # What the server sends first has arrived by then: nothing more does before a heartbeat.
    time.sleep(0.5)
    relay.close(wait_s=DEADLINE_S)
    assert not relay._thread.is_alive()
    assert relay.error is None


def test_the_lookup_uses_tls(secured: Secured, table: Database) -> None:
    user = secured.user("certified", "REQUIRE X509")
    url = f"jdbc:mysql://localhost:{secured.server.port}/{table.name}"
    options = {
        "url": f"{url}?sslMode=VERIFY_IDENTITY",
        "table-name": "t",
        "password": PASSWORD,
        "ssl.ca": secured.ca,
        "ssl.cert": secured.client[0],
        "ssl.key": secured.client[1],
    } | user
    keyed = JdbcReader(parse_jdbc(options).server)
    try:
        assert keyed.rows(["id"], [(1,)]).to_pylist() == [{"id": 1}]
    finally:
        keyed.close()


@pytest.mark.parametrize(
    ("extra", "encrypted"),
    [
        ({}, True),
        ({"ssl.mode": "disabled"}, False),
        ({"jdbc.properties.useSSL": "false"}, False),
        ({"jdbc.properties.sslMode": "REQUIRED"}, True),
        ({"debezium.database.ssl.mode": "required"}, True),
    ],
)
def test_each_mode_encrypts_or_does_not(
    table: Database, extra: dict[str, str], encrypted: bool
) -> None:
    session = Session(parse(table.options("t", **extra)))
    try:
        ((_, cipher),) = session.rows("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
    finally:
        session.close()
    assert bool(cipher) is encrypted


def test_a_server_that_requires_tls(secured: Secured, table: Database) -> None:
    plain = {"ssl.mode": "disabled"}
    strict = secured.user("strict", "REQUIRE SSL")
    text = _refusal(table, **plain, **strict)
    assert "requires TLS of user 'strict'" in text and "'ssl.mode'" in text
    secured.server.execute(f"SET GLOBAL {SECURE} = ON")
    try:
        text = _refusal(table, **plain)
    finally:
        secured.server.execute(f"SET GLOBAL {SECURE} = OFF")
    assert "requires TLS" in text and "'ssl.mode'" in text
    # A wrong password is still reported as one.
    text = _refusal(table, **plain, **strict, password="wrong")
    assert "'username' and 'password'" in text and "requires TLS" not in text


@pytest.mark.skipif(IS_MYSQL, reason="MySQL makes certificates by itself")
def test_a_server_without_tls(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    text = _refusal(database, **{"ssl.mode": "required"})
    assert "offers no TLS" in text and "'required'" in text


def test_an_untrusted_certificate(secured: Secured, table: Database) -> None:
    other = str(secured.folder / "other.pem")
    for extra in ({"ssl.ca": other}, {"ssl.mode": "verify-ca"}):
        text = _refusal(table, **extra)
        assert "is not trusted" in text and "'ssl.ca'" in text


def test_a_host_name_that_does_not_match(secured: Secured, table: Database) -> None:
    text = _refusal(table, **{"ssl.mode": "verify-identity", "ssl.ca": secured.ca})
    assert "not valid for the host name '127.0.0.1'" in text
    verified = {"ssl.mode": "verify-ca", "ssl.ca": secured.ca}
    source = table.source("t", options=verified)
    start = source.initial_offset()
    assert rows_of(source, start, source.latest_offset(start))


def test_a_missing_or_refused_client_certificate(secured: Secured, table: Database) -> None:
    user = secured.user("certified", "REQUIRE X509")
    text = _refusal(table, **user)
    assert "client certificate (REQUIRE X509" in text and "'ssl.cert'" in text
    certificate, key = secured.stranger
    text = _refusal(table, **user, **{"ssl.cert": certificate, "ssl.key": key})
    assert "refuses the client certificate" in text and "'ssl_ca'" in text


def test_files_that_cannot_be_used(secured: Secured, table: Database, tmp_path: Path) -> None:
    certificate, key = secured.client
    locked, store, jks = tmp_path / "locked.key", tmp_path / "store.p12", tmp_path / "store.jks"
    openssl("pkey", "-in", key, "-aes128", "-passout", "pass:hidden", "-out", locked)
    openssl("pkcs12", "-export", "-in", certificate, "-inkey", key, "-passout", "pass:hidden",
             "-out", store)  # fmt: skip
    jks.write_bytes(b"\xfe\xed\xfe\xed" + bytes(8))
    unlocked = {"ssl.cert": certificate, "ssl.key": str(locked)}
    for extra, message in (
        ({"ssl.ca": "/nowhere/ca.pem"}, "/nowhere/ca.pem cannot be read: No such file"),
        (unlocked, "'ssl.key-password' if the key is encrypted"),
        (unlocked | {"ssl.key-password": "hiddem"}, "'ssl.key-password' if the key is encrypted"),
        (
            {
                "jdbc.properties.sslMode": "VERIFY_CA",
                "jdbc.properties.trustCertificateKeyStoreUrl": f"file:{store}",
                "jdbc.properties.trustCertificateKeyStorePassword": "hidden",
            },
            "trustCertificateKeyStoreUrl': .*openssl pkcs12 -in .*store.p12 -nokeys -out ca.pem",
        ),
        (
            {"debezium.database.ssl.keystore": str(jks)},
            r"ssl.keystore': .*keytool -importkeystore .*openssl pkcs12 -in .*jks.p12 -nodes",
        ),
    ):
        with pytest.raises(OptionError, match=message) as caught:
            MySqlSource(table.options("t", **extra))
        assert "hidde" not in str(caught.value)
    source = table.source("t", options=unlocked | {"ssl.key-password": "hidden"})
    assert source.schema.names == ["id"]
