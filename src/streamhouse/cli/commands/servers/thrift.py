"""`streamhouse thrift`: serves tables and views of a warehouse to clients of JDBC and ODBC."""

import time
from contextlib import closing
from pathlib import Path

import typer

from streamhouse.cli.errors import INTERRUPTED, StopSignal
from streamhouse.cli.flags import (
    DEFAULT_MASTER,
    DEFAULT_WAREHOUSE,
    open_warehouse,
    spark_settings,
    with_flags,
    write_port,
)
from streamhouse.cli.run_output import notice, print_stderr
from streamhouse.errors import OptionError, StreamhouseError
from streamhouse.options import hide_secrets
from streamhouse.paimon.storage.files import is_local

STEP_S = 0.1
REFRESH_S = 2.0
REMOTE_REFRESH_S = 10.0


@with_flags("thrift")
def thrift(
    warehouse: str = DEFAULT_WAREHOUSE,
    option: list[str] | None = None,
    host: str = "127.0.0.1",
    port: int = 10000,
    port_file: str | None = None,
    password_file: Path | None = None,
    no_password: bool = False,
    conf: list[str] | None = None,
    master: str = DEFAULT_MASTER,
    verbose: bool = False,
) -> None:
    """Serve a warehouse by Spark's Thrift server: for Tableau, Power BI, Superset and JDBC.

    Clients read each table and view under its own name; each query reads the newest snapshot. New
    tables and columns appear after some seconds. Clients log in with a password and any user name,
    or as --conf sets. They can read only what is served, no other files, and cannot write. Runs
    until Ctrl-C (exit code 130) or SIGTERM (0).
    """
    settings = spark_settings(conf)
    password = _password(password_file, no_password, settings)
    stop = StopSignal(notice="stopping …")
    opened = open_warehouse(warehouse, option)

    from streamhouse.runtime.spark.jvm import OUTPUT
    from streamhouse.runtime.spark.session import jvm_has_exited
    from streamhouse.thrift.server import ThriftServer

    with closing(
        ThriftServer(opened, host, port, master, settings, _notice, verbose, password)
    ) as server:
        if port_file is not None:
            write_port(port_file, server.port)
        url = f"jdbc:hive2://{host}:{server.port}"
        if password is not None and password_file is None:
            print_stderr(f"The password, for any user name: {password}")
        print_stderr(f"Streamhouse serves {warehouse} at {url} (Ctrl-C ends)")
        interval = REFRESH_S if is_local(warehouse) else REMOTE_REFRESH_S
        refreshed = time.monotonic()
        while not stop.requested():
            time.sleep(STEP_S)
            if time.monotonic() - refreshed < interval:
                continue
            if jvm_has_exited(0.0):
                raise StreamhouseError(
                    f"Spark's JVM has died: {OUTPUT.last_lines() or 'without a message'}"
                )
            server.refresh()
            refreshed = time.monotonic()
    if stop.interrupted:
        raise typer.Exit(INTERRUPTED)


def _password(path: Path | None, none: bool, settings: dict[str, str]) -> str | None:
    """The password of clients; None if `settings` set another login, or there is none."""
    from streamhouse.thrift.server import LOGIN, new_password

    if none and path is not None:
        raise OptionError(
            "options '--password-file' and '--no-password' cannot be combined; give one"
        )
    if path is None:
        return None if none or LOGIN in settings else new_password()
    try:
        password = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"option '--password-file': {path} cannot be read: {error}") from None
    if not password or "\n" in password:
        raise OptionError(
            f"option '--password-file': {path} must contain exactly one line, the password"
        )
    return password


def _notice(text: str) -> None:
    notice(hide_secrets(text))
