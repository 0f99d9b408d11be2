"""The server of the tests of change data capture: MariaDB, or a real MySQL.

`STREAMHOUSE_TEST_MYSQLD` names MySQL's `mysqld`, which scripts/mysql_server.sh prepares.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pymysql
import pytest

from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB, as_user

MYSQLD = os.environ.get("STREAMHOUSE_TEST_MYSQLD")
_PREPARED = Path(__file__).parents[1] / "build" / "mysql" / "sid" / "mysqld"
"""Where scripts/mysql_server.sh puts it."""

_OPTIONS = (
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--mysqlx=OFF",
    "--secure-file-priv=",
    "--innodb-buffer-pool-size=32M",
    "--innodb-redo-log-capacity=32M",
    "--innodb-flush-log-at-trx-commit=2",
    "--performance-schema=OFF",
    "--myisam-recover-options=FORCE",
    "--log-bin=binlog",
    "--server-id=1",
)
_GRANTS = "SELECT, LOCK TABLES, TRIGGER, REPLICATION SLAVE, REPLICATION CLIENT, XA_RECOVER_ADMIN"
_STATEMENTS = (
    (re.compile(r"\bENGINE\s*=\s*Aria( TRANSACTIONAL=\d)?"), "ENGINE=MyISAM"),
    (re.compile(r"SHOW MASTER STATUS"), "SHOW BINARY LOG STATUS"),
    (re.compile(r"RESET MASTER"), "RESET BINARY LOGS AND GTIDS"),
    (re.compile(r"CREATE OR REPLACE TABLE"), "CREATE TABLE"),
)
"""MariaDB's syntax, which the tests use, and MySQL's."""
_OPTION_VALUES = (("NO_LOG", "MINIMAL"),)


class _Cursor(pymysql.cursors.Cursor):
    def execute(self, query: Any, args: Any = None) -> int:
        for mariadb, mysql in _STATEMENTS:
            query = mariadb.sub(mysql, query)
        return super().execute(query, args)


class MySql(MariaDB):
    """A private MySQL, as `MariaDB`; its settings are MySQL's defaults."""

    def connect(self, *arguments: Any, **named: Any) -> pymysql.Connection[Any]:
        connection = super().connect(*arguments, **named)
        connection.cursorclass = _Cursor
        return connection

    def _server_command(self) -> list[str]:
        own = [str(option) for option in self.server_options]
        for mariadb, mysql in _OPTION_VALUES:
            own = [option.replace(mariadb, mysql) for option in own]
        return [self._mysqld(), *self._base_options(), *_OPTIONS, *own]

    def _install_command(self) -> list[str]:
        return [
            self._mysqld(),
            "--no-defaults",
            *as_user(),
            "--initialize-insecure",
            f"--datadir={self.data_dir / 'data'}",
            "--innodb-buffer-pool-size=32M",
            "--innodb-redo-log-capacity=32M",
        ]

    def _install(self) -> None:
        super()._install()
        # Copies of the folder are servers with identities of their own.
        (self.data_dir / "data" / "auto.cnf").unlink(missing_ok=True)

    @staticmethod
    def _mysqld() -> str:
        path = _PREPARED if MYSQLD is None else Path(MYSQLD).absolute()
        if not path.exists():
            pytest.fail(f"MySQL is missing; run scripts/mysql_server.sh ({path})", pytrace=False)
        return str(path)

    def _create_user(self) -> None:
        self.execute(
            f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}'",
            f"GRANT {_GRANTS} ON *.* TO '{USER}'@'%'",
        )


class _MixedEngines(MySql):
    """Allows transactions with tables of several engines, which tests have, and GTIDs forbid."""

    def _server_command(self) -> list[str]:
        return [*super()._server_command(), "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"]


Server: type[MariaDB] = MariaDB if MYSQLD is None else _MixedEngines
