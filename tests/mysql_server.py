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
IS_MYSQL = MYSQLD is not None
"""Whether the tests run against MySQL."""
_PREPARED = Path(__file__).parents[1] / "build" / "mysql" / "sid" / "mysqld"
"""Where scripts/mysql_server.sh puts it."""

_METADATA_LOCKS = (
    "--performance-schema=ON",
    "--performance-schema-instrument=%=OFF",
    "--performance-schema-instrument=wait/lock/metadata/sql/mdl=ON",
    *(
        f"--performance-schema-{name}=0"
        for kind in ("statements", "stages", "waits", "transactions")
        for name in (f"events-{kind}-history-size", f"events-{kind}-history-long-size")
    ),
    *(
        f"--performance-schema-max-{kind}-classes=0"
        for kind in ("mutex", "rwlock", "cond", "file", "socket", "memory", "stage", "statement")
    ),
    *(
        f"--performance-schema-{name}=0"
        for name in ("digests-size", "error-size", "accounts-size", "users-size", "hosts-size",
                     "max-table-instances", "max-table-handles", "max-index-stat")
    ),
    "--performance-schema-max-thread-instances=200",
)  # fmt: skip
"""What the performance schema has by default that snapshots need; all of it takes 250 MB."""
_OPTIONS = (
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--mysqlx=OFF",
    "--secure-file-priv=",
    "--innodb-buffer-pool-size=32M",
    "--innodb-redo-log-capacity=32M",
    "--innodb-flush-log-at-trx-commit=2",
    *_METADATA_LOCKS,
    "--myisam-recover-options=FORCE",
    "--log-bin=binlog",
    "--server-id=1",
    "--cte-max-recursion-depth=2000000",
)
_GRANTS = "SELECT, LOCK TABLES, TRIGGER, REPLICATION SLAVE, REPLICATION CLIENT, XA_RECOVER_ADMIN"
_STATEMENTS = (
    (re.compile(r"\bENGINE\s*=\s*Aria( TRANSACTIONAL=\d)?"), "ENGINE=MyISAM"),
    (re.compile(r"SHOW MASTER STATUS"), "SHOW BINARY LOG STATUS"),
    (re.compile(r"RESET MASTER"), "RESET BINARY LOGS AND GTIDS"),
    (re.compile(r"CREATE OR REPLACE (TABLE|USER|DATABASE)"), r"CREATE \1"),
    (re.compile(r"BINLOG MONITOR"), "REPLICATION CLIENT"),
    (re.compile(r"ADD COLUMN IF NOT EXISTS"), "ADD COLUMN"),
    (re.compile(r"\* 1000 AS INT\)"), "* 1000 AS SIGNED)"),
    (re.compile(r"(binlog_row_metadata = ')NO_LOG'"), r"\1MINIMAL'"),
)
"""MariaDB's syntax, which the tests use, and MySQL's."""
_REPLACED = re.compile(r"CREATE OR REPLACE (USER|DATABASE) (\S+)")
_MARIADB_ONLY = re.compile(
    r"SYSTEM VERSIONING|\bCOMPRESSED\b|\bUUID\b(?! *=)|\bINET[46]\b|SEQUENCE twin|ALTER IGNORE|"
    r"SET STATEMENT|CONVERT PARTITION|_nopad_|uca1400|gtid_binlog_pos|mysql56_temporal_format|"
    r"binlog_alter_two_phase|CREATE OR REPLACE TABLE twin|CREATE TEMPORARY TABLE z SELECT"
)
"""What MySQL does not have, or does not allow; a test that needs it is skipped."""
_SEQUENCE = re.compile(r"(?:\b\w+\.)?\bseq_(\d+)_to_(\d+)\b(?P<alias>(?: [ab]\b)?)")
"""A table of numbers, which MariaDB has for all bounds."""
_OPTION_VALUES = (
    ("NO_LOG", "MINIMAL"),
    ("log-bin-compress=", "binlog-transaction-compression="),
)
_MARIADB_OPTIONS = ("--log-bin-compress-min-len",)


class _Cursor(pymysql.cursors.Cursor):
    def execute(self, query: Any, args: Any = None) -> int:
        if mariadb_only(query):
            pytest.skip(f"only MariaDB has this: {query[:60]}")
        if replaced := _REPLACED.match(query):
            super().execute(f"DROP {replaced[1]} IF EXISTS {replaced[2]}")
        for mariadb, mysql in _STATEMENTS:
            query = mariadb.sub(mysql, query)
        return super().execute(with_sequences(query), args)


def mariadb_only(text: str) -> bool:
    """Whether a statement or a type is one that the server of the tests, MySQL, does not have."""
    return IS_MYSQL and _MARIADB_ONLY.search(text) is not None


def with_sequences(query: str) -> str:
    """The query; on MySQL, with subqueries for MariaDB's tables of numbers."""
    return _SEQUENCE.sub(_numbers, query) if IS_MYSQL else query


def _numbers(sequence: re.Match[str]) -> str:
    first, last = sequence[1], sequence[2]
    return (
        f"(WITH RECURSIVE s(seq) AS (SELECT {first} UNION ALL SELECT seq + 1 FROM s "
        f"WHERE seq < {last}) SELECT seq FROM s){sequence['alias'] or ' numbers'}"
    )


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
        own = [option for option in own if not option.startswith(_MARIADB_OPTIONS)]
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
            *self._at_initialization,
        ]

    @property
    def _at_initialization(self) -> list[str]:
        """The options that a server keeps for ever."""
        return [one for one in self.server_options if one.startswith("--lower-case-table-names")]

    def _install(self) -> None:
        chosen = self.data_dir / "initialized-with"
        if self._at_initialization and not chosen.exists():
            (self.data_dir / "installed").unlink(missing_ok=True)
            chosen.write_text(" ".join(self._at_initialization))
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
