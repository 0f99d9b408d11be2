"""A server and its replica, of MariaDB or MySQL, for tests of a failover."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tests.integration.conftest import Installed
from tests.mysql_server import MySql

from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB


@dataclass
class Replication:
    """`replica` replicates all of `server` from its first transaction on; here of MariaDB."""

    server: MariaDB
    replica: MariaDB

    kind: ClassVar[type[MariaDB]] = MariaDB
    options: ClassVar[tuple[str, ...]] = ()
    replica_options: ClassVar[tuple[str, ...]] = ("--log-slave-updates",)
    pause: ClassVar[str] = "STOP SLAVE"
    forget: ClassVar[str] = "RESET SLAVE ALL"

    @classmethod
    @contextmanager
    def running(cls, installed: Installed, folder: Path, *more: str) -> Iterator[Replication]:
        """Start both servers; `more`: options of the replica."""
        options = ("--server-id=2", "--binlog-checksum=NONE", *cls.options, *cls.replica_options)
        with (
            cls.kind(installed(folder / "own"), server_options=cls.options) as server,
            cls.kind(installed(folder / "replica"), server_options=[*options, *more]) as replica,
        ):
            yield cls(server, replica)

    def start(self) -> None:
        """Start the replication, and wait until the replica has caught up."""
        self.replica.execute(
            "RESET MASTER",
            f"CHANGE MASTER TO master_host = '127.0.0.1', master_port = {self.server.port},"
            f" master_user = '{USER}', master_password = '{PASSWORD}',"
            " master_use_gtid = slave_pos",
            "SET GLOBAL gtid_slave_pos = ''",
            "START SLAVE",
        )
        self.wait()

    def wait(self) -> None:
        """Wait until the replica has all transactions of the server."""
        position = self.server.execute("SELECT @@gtid_binlog_pos")[0][0]
        waited = self.replica.execute(f"SELECT MASTER_GTID_WAIT('{position}', 60)")
        assert waited == [(0,)], self.replica.execute("SHOW SLAVE STATUS")

    def promote(self) -> MariaDB:
        """Let the replica, as it is, take the place of the server, which is away."""
        self.replica.execute(self.pause, self.forget)
        self.server.stop()
        return self.replica

    def restore(self) -> None:
        """Leave the replica as a backup of the server that was restored now: without a binlog."""
        self.replica.execute(self.pause, "RESET MASTER")

    def executed(self) -> str:
        """The GTIDs of the server's transactions."""
        return str(self.server.execute("SELECT @@gtid_binlog_pos")[0][0])


class MySqlReplication(Replication):
    """The same of MySQL, with GTIDs."""

    kind = MySql
    options = ("--gtid-mode=ON", "--enforce-gtid-consistency=ON")
    replica_options = ("--log-replica-updates=ON",)
    pause = "STOP REPLICA"
    forget = "RESET REPLICA ALL"

    def start(self) -> None:
        self.replica.execute(
            "RESET BINARY LOGS AND GTIDS",
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', GET_SOURCE_PUBLIC_KEY = 1,"
            f" SOURCE_PORT = {self.server.port}, SOURCE_USER = '{USER}',"
            f" SOURCE_PASSWORD = '{PASSWORD}', {self._begin()}",
            "START REPLICA",
        )
        self.wait()

    def _begin(self) -> str:
        return "SOURCE_AUTO_POSITION = 1"

    def wait(self) -> None:
        waited = f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{self.executed()}', 60)"
        assert self.replica.execute(waited) == [(0,)], self._errors()

    def _errors(self) -> list[tuple[Any, ...]]:
        return self.replica.execute(
            "SELECT last_error_message FROM performance_schema.replication_connection_status UNION "
            "SELECT last_error_message FROM performance_schema.replication_applier_status_by_worker"
        )

    def restore(self) -> None:
        super().restore()
        self.replica.execute(f"SET GLOBAL gtid_purged = '{self.executed()}'")

    def executed(self) -> str:
        return str(self.server.execute("SELECT @@GLOBAL.gtid_executed")[0][0])


class MySqlPositions(MySqlReplication):
    """The same of MySQL, without GTIDs."""

    options = ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")

    def _begin(self) -> str:
        return "SOURCE_LOG_FILE = 'binlog.000001', SOURCE_LOG_POS = 4"

    def wait(self) -> None:
        file, position, *_ = self.server.execute("SHOW BINARY LOG STATUS")[0]
        waited = self.replica.execute(f"SELECT SOURCE_POS_WAIT('{file}', {position}, 60)")[0][0]
        assert waited is not None and waited >= 0, self._errors()

    def restore(self) -> None:
        self.replica.execute(self.pause, "RESET MASTER")
