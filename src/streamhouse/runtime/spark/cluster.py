"""Settings of a session on a cluster, and what can be checked before it starts."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from streamhouse.errors import ConnectError, OptionError
from streamhouse.runtime.spark.jvm import spark_home

_CONNECT_S = 4.0
_MASTER = re.compile(r"local$|local\[|local-cluster\[|spark://.|yarn$|k8s://.")
_STANDALONE = re.compile(r"spark://(?P<hosts>.+)")
_DEFAULT_PORT = 7077
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


def check_master(master: str) -> None:
    """Raise `ConnectError` with one line if no master of a standalone cluster can be reached.

    Spark itself would try for a minute. Other kinds of clusters are not connected to. Raises
    `OptionError` for a server of Spark Connect, and for what is no master at all.
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
    match = _STANDALONE.fullmatch(master)
    if match is None:
        return
    problems = []
    for place in match["hosts"].split(","):
        host, _, port = place.rpartition(":")
        if not host or not port.isdigit():
            host, port = place, str(_DEFAULT_PORT)
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
            return
        except OSError as error:
            problems.append(f"{place}: {error.strerror or error}")
    raise ConnectError(
        f"option '--master': {master} cannot be reached ({'; '.join(problems)}); check that the "
        "master runs, and that this machine may connect to its port"
    )
