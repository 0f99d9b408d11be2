"""A private MariaDB server with its own data folder, socket and port, for demos and tests."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Sequence
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, Self

import pymysql
from pymysql.constants import CLIENT

from streamhouse.demo.private_server import PrivateServer
from streamhouse.errors import ConnectError

USER = "streamhouse"
PASSWORD = "streamhouse"

PACKAGES = ("mariadb-server-core", "mariadb-client-core")
"""Debian's packages with MariaDB's programs, without the service."""
_PROGRAMS = ("mariadbd", "mariadb-install-db", "my_print_defaults")

_SOCKET_PATH_LIMIT = 100
_PORTS = range(20_000, 32_000)
"""Below the ports that systems assign to connections, so none takes a restarting server's port."""

_SETTINGS = files(__package__) / "mariadb.properties"

_GRANTS = "SELECT, LOCK TABLES, TRIGGER, REPLICATION SLAVE, BINLOG MONITOR, REPLICATION SLAVE ADMIN"


class MariaDB(PrivateServer):
    """A server of its own under `data_dir`, with a row-format binlog, on 127.0.0.1 only.

    It has a free TCP port, which later starts on the same folder reuse if it is free.
    `server_options`: more `mariadbd` options, which override the defaults. `root` connects by the
    socket without a password, `USER` by TCP with `PASSWORD` and the privileges of change data
    capture (it cannot write).

    Raises `ConnectError` if MariaDB is not installed or does not start.
    """

    name = "MariaDB"

    def __init__(self, data_dir: Path, server_options: Sequence[str] = ()) -> None:
        super().__init__(data_dir)
        self.server_options = tuple(server_options)
        self._port: int | None = None

    @property
    def port(self) -> int:
        """The TCP port; known once the server has been started."""
        if self._port is None:
            raise ConnectError("the private MariaDB has no port before start()")
        return self._port

    @property
    def socket(self) -> Path:
        """The Unix socket; in the temporary folder, with the inode in its name, if the path of the
        data folder is too long.
        """
        path = self.data_dir / "mariadb.sock"
        if len(str(path)) < _SOCKET_PATH_LIMIT:
            return path
        return Path(tempfile.gettempdir()) / f"streamhouse-{self.data_dir.stat().st_ino}.sock"

    def start(self) -> Self:
        if self.pid is None:
            super().start()
            self._create_user()
        return self

    def connect(
        self, database: str | None = None, multi_statements: bool = False
    ) -> pymysql.Connection[Any]:
        """A connection of `root` by the socket, in autocommit mode, UTF-8.

        With `multi_statements` it accepts several statements at once, separated by `;`.
        """
        return pymysql.connect(
            unix_socket=str(self.socket),
            user="root",
            database=database,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=10,
            ssl_disabled=True,
            client_flag=CLIENT.MULTI_STATEMENTS if multi_statements else 0,
        )

    def execute(self, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Run the statements as `root`, one after another; the rows of the last one."""
        with closing(self.connect(database)) as connection:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                return list(cursor.fetchall())

    def run(self, script: Path, **values: str) -> None:
        """Run a script as `root`, with these values in it; its statements end with `;`."""
        text = Template(script.read_text()).substitute(values)
        self.execute(*filter(None, map(str.strip, text.split(";"))))

    def _server_command(self) -> list[str]:
        lines = _SETTINGS.read_text().splitlines()
        settings = [f"--{line}" for line in lines if not line.startswith("#")]
        return [_program("mariadbd"), *self._base_options(), *settings, *self.server_options]

    def _base_options(self) -> list[str]:
        """The options with which any server of this folder starts: its user, files and port."""
        return [
            "--no-defaults",
            *as_user(),
            self._own_argument,
            f"--socket={self.socket}",
            f"--port={self._port}",
            f"--log-error={self.log}",
            f"--tmpdir={self._temporary}",
        ]

    @property
    def _own_argument(self) -> str:
        return f"--datadir={self.data_dir / 'data'}"

    def _prepare(self) -> None:
        self._install()
        self._port = self._choose_port()

    @property
    def _temporary(self) -> Path:
        """The folder of temporary tables, not shared: at its start a server empties it."""
        path = self.data_dir / "tmp"
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def _install(self) -> None:
        self._create_data(self._install_command(), {"TMPDIR": str(self._temporary)})

    def _install_command(self) -> list[str]:
        return [
            _program("mariadb-install-db"),
            "--no-defaults",
            *as_user(),
            self._own_argument,
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--innodb-log-file-size=16M",
        ]

    def _choose_port(self) -> int:
        port_file = self.data_dir / "port"
        with contextlib.suppress(OSError, ValueError):
            port = self._port or int(port_file.read_text())
            if _is_free(port):
                return port
        port = free_port()
        port_file.write_text(str(port))
        return port

    def _answers(self) -> bool:
        # Test the socket first: PyMySQL leaks its own if the server does not listen yet.
        if _is_listening(self.socket):
            with contextlib.suppress(pymysql.err.OperationalError):
                self.connect().close()
                return True
        return False

    def _last_error(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        errors = [line for line in lines[-200:] if "[ERROR]" in line and "Aborting" not in line]
        return errors[-1].split("[ERROR]")[1].strip() if errors else super()._last_error()

    def _create_user(self) -> None:
        names = ("127.0.0.1", "::1", socket.gethostname().lower())
        self.execute(
            *(f"DROP USER IF EXISTS 'root'@'{host}'" for host in names),
            f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}'",
            f"GRANT {_GRANTS} ON *.* TO '{USER}'@'%'",
        )


def free_port() -> int:
    """A TCP port of 127.0.0.1 that is free, and that the system assigns to no connection."""
    first = secrets.randbelow(len(_PORTS))
    for number in range(len(_PORTS)):
        port = _PORTS[(first + number) % len(_PORTS)]
        if _is_free(port):
            return port
    raise ConnectError(f"no port from {_PORTS.start} to {_PORTS.stop - 1} is free")


def _is_listening(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def missing_program() -> str | None:
    """Which program of MariaDB is not installed; None if all are."""
    for name in _PROGRAMS:
        if _found(name) is None:
            return f"{name} is not installed"
    return None


def _found(name: str) -> str | None:
    # Debian keeps the server in sbin, which is not on every user's PATH.
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/sbin"])
    return shutil.which(name, path=path)


def _program(name: str) -> str:
    program = _found(name)
    if program is None:
        raise ConnectError(f"{name} is not installed; run `apt-get install {' '.join(PACKAGES)}`")
    return program


def as_user() -> list[str]:
    return ["--user=root"] if os.geteuid() == 0 else []
