"""Settings of a session on a cluster, and what can be checked before it starts."""

import os
import re
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from streamhouse.errors import ConnectError, OptionError
from streamhouse.runtime.spark.jvm import spark_home

_CONNECT_S, _ANSWER_S = 4.0, 5.0
_MASTER = re.compile(r"local$|local\[|local-cluster\[|spark://.|yarn$|k8s://.")
_STANDALONE = re.compile(r"spark://(?P<hosts>.+)")
_DEFAULT_PORT = 7077
_NO_FILE = b"files/streamhouse"
_STREAM_REQUEST, _STREAM_FAILURE = 6, 8
"""Types of messages of Spark's RPC; a message begins with its length (8 bytes) and its type."""
_OURS = ("spark.python.daemon.module", "spark.sql.session.timeZone")
"""Settings on which our tasks depend; a configuration file cannot replace them."""


def executor_python(settings: Mapping[str, str]) -> str:
    """The Python of executors: as the settings or the environment say, else this Python."""
    configured = {**configured_settings(), **settings}
    given = configured.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    return given or sys.executable


def defaults_for_cluster(defaults: Mapping[str, str]) -> dict[str, str]:
    """Our default settings without those that the cluster's `spark-defaults.conf` has."""
    configured = configured_settings()
    return {
        key: setting for key, setting in defaults.items() if key in _OURS or key not in configured
    }


def configured_settings() -> dict[str, str]:
    """The settings in `spark-defaults.conf`, which is in SPARK_CONF_DIR or in Spark's `conf`."""
    folder = os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf"
    try:
        text = (Path(folder) / "spark-defaults.conf").read_text()
    except OSError:
        return {}
    settings = {}
    for line in text.splitlines():
        words = re.split(r"[\s=:]+", line.strip(), maxsplit=1)
        if words[0] and not words[0].startswith("#"):
            settings[words[0]] = words[1].strip() if len(words) > 1 else ""
    return settings


def check_master(master: str, settings: Mapping[str, str] | None = None) -> None:
    """Raise `ConnectError` with one line if no master of a cluster can be reached.

    Spark itself would try for a minute. Of Kubernetes only the connection is checked, other kinds
    of clusters are not connected to. Raises `OptionError` for a server of Spark Connect, and for
    what is no master at all.
    """
    if master.startswith("sc://"):
        raise OptionError(
            f"option '--master': {master} is a Spark Connect server, which cannot run pipelines: "
            "their driver has to start Spark itself; set the master of the server's cluster, or "
            "use the data sources (docs/guides/python-data-sources.md)"
        )
    if _MASTER.match(master) is None:
        raise OptionError(
            f"option '--master': '{master}' is no master of Spark; write spark://host:7077, yarn, "
            "k8s://https://host:6443 or local[2]"
        )
    if master.startswith("k8s://"):
        _check_kubernetes(master)
    match = _STANDALONE.fullmatch(master)
    if match is None:
        return
    with_tls = {**configured_settings(), **(settings or {})}.get("spark.ssl.rpc.enabled") == "true"
    problems = []
    for place in match["hosts"].split(","):
        host, _, port = place.rpartition(":")
        if not host or not port.isdigit():
            host, port = place, str(_DEFAULT_PORT)
        try:
            with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S) as connection:
                if with_tls or _is_spark(connection):
                    return
            problems.append(f"{place}: no answer of a Spark master")
        except OSError as error:
            problems.append(f"{place}: {error.strerror or error}")
    raise _unreachable(master, problems)


def _is_spark(connection: socket.socket) -> bool:
    """Whether a server speaks Spark's RPC: it refuses a file that does not exist."""
    request = struct.pack(f">bi{len(_NO_FILE)}s", _STREAM_REQUEST, len(_NO_FILE), _NO_FILE)
    connection.settimeout(_ANSWER_S)
    try:
        connection.sendall(struct.pack(">q", 8 + len(request)) + request)
        with connection.makefile("rb") as answer:
            length, kind = struct.unpack(">qb", answer.read(9))
    except (OSError, struct.error):
        return False
    return bool(kind == _STREAM_FAILURE and 0 < length < 1 << 20)


def _check_kubernetes(master: str) -> None:
    address = master.removeprefix("k8s://")
    parts = urlsplit(address if "://" in address else f"https://{address}")
    host = parts.hostname or ""
    if parts.scheme in getproxies() and not proxy_bypass(host):
        return
    port = parts.port or (80 if parts.scheme == "http" else 443)
    try:
        socket.create_connection((host, port), _CONNECT_S).close()
    except OSError as error:
        raise _unreachable(master, [f"{host}:{port}: {error.strerror or error}"]) from None


def _unreachable(master: str, problems: Sequence[str]) -> ConnectError:
    return ConnectError(
        f"option '--master': {master} cannot be reached ({'; '.join(problems)}); check that the "
        "master runs, and that this machine may connect to its port"
    )
