"""Runs Spark's Thrift server, which speaks the HiveServer2 protocol, in the JVM of a session."""

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable, Mapping, MutableMapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streamhouse.errors import ConnectError, OptionError, StreamhouseError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.spark.session import check_cluster, end_session, start_session
from streamhouse.runtime.spark.settings import SparkOptions
from streamhouse.spark import prepare
from streamhouse.thrift.catalog import ServedCatalog
from streamhouse.thrift.source import make_discoverable
from streamhouse.work_folder import work_folder

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ADDRESS = (
    "hive.server2.thrift.bind.host",
    "hive.server2.thrift.port",
    "hive.server2.thrift.http.port",
)
_SETTINGS = {
    # No impersonation: one operating-system user reads all tables for all clients.
    "hive.server2.enable.doAs": "false",
    "hive.server2.logging.operation.enabled": "false",
    "spark.sql.catalogImplementation": "in-memory",
    # For queries over tables of any size; the session's defaults are for small batches.
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    # Spark 4.3 has one plan for all reads of a table in a query: in a self-join, all of them would
    # apply the filters of the last one.
    "spark.sql.python.filterPushdown.enabled": "false",
}
_FIXED_SETTINGS = {
    # SQL must not refer to files, environment variables or properties of the JVM.
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.variable.substitute": "false",
}
_CLASS_PATH = "spark.driver.extraClassPath"
LOGIN = "hive.server2.authentication"


class ThriftServer:
    """Serves a warehouse until `close`; calls `notice` with what cannot be served.

    `overrides`: settings of Spark and Hive that override the defaults (`hive.…`, `spark.…`);
    `port` 0 chooses a free one. Clients log in with the `password` under any name; without one, as
    `overrides` set. They can read what is served, and nothing else of the machine. Raises
    `OptionError` for a host that others can reach without a login, `ConnectError` if the port is
    not available.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        host: str,
        port: int,
        master: str,
        overrides: Mapping[str, str],
        notice: Callable[[str], None],
        verbose: bool = False,
        password: str | None = None,
    ) -> None:
        _check(host, overrides, password)
        self._notice = notice
        self._last_error = ""
        self._resources = contextlib.ExitStack()
        folder = Path(self._resources.enter_context(work_folder("streamhouse-thrift-")))
        make_discoverable(warehouse.options)
        _forget_address(os.environ)
        address = {"hive.server2.thrift.bind.host": host, "hive.server2.thrift.port": str(port)}
        settings = {**_SETTINGS, **_folders(folder), **address}
        if password is not None:
            settings[LOGIN] = "CUSTOM"
        classes = folder / "classes"
        classes.mkdir()
        paths = filter(None, [os.fspath(classes), overrides.get(_CLASS_PATH)])
        settings |= {**overrides, **_FIXED_SETTINGS, _CLASS_PATH: os.pathsep.join(paths)}
        try:
            options = SparkOptions(master, settings, verbose)
            context = start_session("streamhouse-thrift", options)
            spark = SparkSession(context)
            prepare(spark)
            check_cluster(context, options, [warehouse.options], notice)
            self._catalog = ServedCatalog(spark, warehouse, notice)
            self._catalog.refresh()
            install(spark, password, classes)
            self._server = _started(spark, host, port)
        except BaseException:
            self.close()
            raise

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        for service in self._server.getServices():
            if str(service.getName()).startswith("Thrift"):
                return int(service.getPortNumber())
        raise AssertionError("the server has no Thrift service")

    def refresh(self) -> None:
        """Update what is served; if the warehouse cannot be listed, `notice` is called once."""
        try:
            self._catalog.refresh()
        except (StreamhouseError, OSError, ValueError, RuntimeError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            if reason != self._last_error:
                self._notice(f"the warehouse cannot be listed now: {reason}")
            self._last_error = reason
        else:
            self._last_error = ""

    def close(self) -> None:
        """Stop the server, its connections and its JVM."""
        end_session()
        self._resources.close()


def _started(spark: Any, host: str, port: int) -> Any:
    package = spark._jvm.org.apache.spark.sql.hive.thriftserver
    try:
        return package.HiveThriftServer2.startWithSparkSession(spark._jsparkSession, False)
    except Py4JJavaError as error:
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        reason = cause.getMessage() or cause.toString()
        raise ConnectError(
            f"the Thrift server cannot listen on {host}:{port} ({reason}); choose another --port "
            "(0 chooses a free one) or --host"
        ) from error


def _check(host: str, overrides: Mapping[str, str], password: str | None) -> None:
    for key in overrides:
        if not key.startswith(("hive.", "spark.")):
            raise OptionError(
                f"option '--conf': '{key}' is not a setting of Spark or Hive, which start with "
                "'spark.' or 'hive.'"
            )
        if key.lower().removeprefix("spark.").removeprefix("hadoop.") in _ADDRESS:
            raise OptionError(
                f"option '--conf': '{key}' cannot be set; use the options --host and --port"
            )
    if password is not None and LOGIN in overrides:
        raise OptionError(f"option '--conf': {LOGIN} and a password cannot be combined; give one")
    login = overrides.get(LOGIN, "NONE").upper()
    if host not in _LOOPBACK and password is None and login in ("NONE", "NOSASL"):
        raise OptionError(
            f"option '--host': other machines can reach {host}, and no login is set. Leave out "
            "--no-password, or --host, or set another login, such as --conf "
            "hive.server2.authentication=LDAP --conf hive.server2.authentication.ldap.url=…"
        )


def _forget_address(environment: MutableMapping[str, str]) -> None:
    """Remove variables that override the settings of Hive's server, which `_check` cannot see."""
    for name in ("HIVE_SERVER2_THRIFT_BIND_HOST", "HIVE_SERVER2_THRIFT_PORT"):
        environment.pop(name, None)


def _folders(folder: Path) -> dict[str, str]:
    """Working folders of Hive and Spark; the defaults are in /tmp, where users would share them."""
    names = {
        "hive.exec.scratchdir": "scratch",
        "hive.exec.local.scratchdir": "local",
        "hive.downloaded.resources.dir": "resources",
        "hive.querylog.location": "log",
        "hive.server2.logging.operation.log.location": "operations",
        "spark.sql.warehouse.dir": "catalog",
    }
    return {key: os.fspath(folder / name) for key, name in names.items()}


_GUARD = "streamhouse.Guard"
_PROVIDER = f"{_GUARD}$Password"
"""The class that Hive's server calls to check a password."""
_SOURCE = "Guard.java"
_BYTES = 18


def new_password() -> str:
    """A random password of hexadecimal digits: clients take one that begins with `-` for a flag."""
    return secrets.token_hex(_BYTES)


def install(spark: Any, password: str | None, folder: Path) -> None:
    """Restrict the sessions that are derived from Spark's from now on, and set the password.

    The classes are written to `folder`, which is in the class path of the JVM: Hive's server loads
    the one that checks the password in threads with different class loaders.
    """
    jvm = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(files("streamhouse.thrift").joinpath(_SOURCE).read_text())
    for name, code in dict(compiler.getBytecodes()).items():
        file = folder.joinpath(*name.split(".")).with_suffix(".class")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(code)
    guard = loader.loadClass(_GUARD).newInstance()
    guard.confine(spark._jsparkSession)
    if password is not None:
        # Hive's server reads this from the system's properties, not from its own settings.
        jvm.java.lang.System.setProperty("hive.server2.custom.authentication.class", _PROVIDER)
        guard.password(hashlib.sha256(password.encode()).hexdigest())
