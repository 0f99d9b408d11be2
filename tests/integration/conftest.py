"""Servers of the integration tests, started once a session, and settings for a quick Spark."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.differential.local_run import without_spark
from tests.java_pool import java_pool, lent_java
from tests.mysql_server import MySql, Server
from tests.waiting import DEADLINE_S

from streamhouse.demo.mariadb import MariaDB
from streamhouse.runtime.spark import jvm
from streamhouse.runtime.spark.session import end_session
from streamhouse.runtime.spark.worker_python import worker_python

__all__ = ["java_pool", "lent_java"]
Installed = Callable[[Path], Path]
"""Makes a folder, which a server that is started on it need not fill first; gives it back."""


def _installed(tmp_path_factory: pytest.TempPathFactory, server: type[MariaDB]) -> Installed:
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    first = shared / f"installed-{server.__name__}"
    first.mkdir(exist_ok=True)
    with (shared / f"{first.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        server(first)._install()

    def copied(folder: Path) -> Path:
        shutil.copytree(first, folder, dirs_exist_ok=True)
        return folder

    return copied


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The first data of a private server, made once and copied: making them takes seconds.

    All processes of pytest share them.
    """
    return _installed(tmp_path_factory, Server)


@pytest.fixture(scope="session")
def installed_mysql(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The same of a real MySQL, whatever server the other tests have."""
    return _installed(tmp_path_factory, MySql)


@pytest.fixture(scope="session")
def installed_demo(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The same of the demo's server, which is always MariaDB."""
    return _installed(tmp_path_factory, MariaDB)


@pytest.fixture(scope="session")
def mariadb(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """One private MariaDB for all tests; each test makes a database of its own."""
    with Server(installed(tmp_path_factory.mktemp("mariadb"))) as server:
        # By default a statement waits a day for the table of a test that has failed.
        server.execute(f"SET GLOBAL lock_wait_timeout = {2 * DEADLINE_S}")
        yield server


@pytest.fixture(scope="session")
def spark_conf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of settings with which a Spark of one's own starts as a pipeline's does."""
    archive = jvm.java_options(jvm.archive_path())
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 {archive}",
        # The class archive is one of this class path, which others may follow.
        "spark.driver.extraClassPath": jvm.classpath(),
    }
    folder = tmp_path_factory.mktemp("spark_conf")
    lines = [f"{key} {text}\n" for key, text in settings.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    return folder


@pytest.fixture
def quick_spark(spark_conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that the test starts have these settings: less time, and the same outcome."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(spark_conf))
    # Spark gives a Python process ten seconds to connect, half of which would go into compiling
    # its zipped sources on a busy machine.
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, worker_python())


@pytest.fixture
def in_threads() -> Iterator[None]:
    """Queries of scripts in this process run in threads instead of Spark: the same planner, tasks
    and commits, without the start of a JVM and of Python processes."""
    with without_spark():
        yield


@pytest.fixture(scope="session")
def spark_here() -> Iterator[None]:
    """Ends the Spark that scripts in this process have started."""
    yield
    end_session()
