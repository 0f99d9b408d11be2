"""Checks of a cluster before tasks run on it."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from streamhouse.cli.flags import spark_options
from streamhouse.errors import ClusterError, ConnectError, OptionError
from streamhouse.runtime.spark import cluster, executors
from streamhouse.runtime.spark.settings import SparkOptions

DRIVER = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[2]", True),
        ("local[*,4]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://host:7077", False),
        ("yarn", False),
        ("k8s://https://host:6443", False),
    ],
)
def test_which_masters_are_local(master: str, local: bool) -> None:
    assert SparkOptions(master).is_local is local


def test_a_dead_master_is_one_line_at_once() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        with pytest.raises(ConnectError, match=f"127.0.0.1:{port}: Connection refused") as caught:
            cluster.check_master(f"spark://127.0.0.1:{port},localhost:{port}")
    assert "\n" not in str(caught.value)


@contextmanager
def answering(answer: bytes | None) -> Iterator[str]:
    """A server that answers each connection with these bytes; with None it only accepts it."""
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as connections:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection = connections.enter_context(server.accept()[0])
                    if answer is not None:
                        connection.recv(100)
                        connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


REFUSED = b"\0\0\0\0\0\0\0\x12\x08\0\0\0\x01x\0\0\0\0"
"""As a Spark master answers a request for a file that it does not have."""


def test_one_of_several_masters_is_enough() -> None:
    with answering(REFUSED) as place:
        cluster.check_master(f"spark://127.0.0.1:1,{place}")


@pytest.mark.parametrize("answer", [None, b"HTTP/1.1 400 Bad Request\r\n\r\n", b"?"])
def test_a_server_that_is_no_spark_master_is_one_line(
    answer: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cluster._CONNECT_S + cluster._ANSWER_S < 10
    monkeypatch.setattr(cluster, "_ANSWER_S", 0.3)
    with answering(answer) as place:
        message = rf"spark://{place} cannot be reached \({place}: no answer of a Spark master\)"
        with pytest.raises(ConnectError, match=message) as caught:
            cluster.check_master(f"spark://{place}")
        assert "\n" not in str(caught.value)
        cluster.check_master(f"spark://{place}", {"spark.ssl.rpc.enabled": "true"})


def test_a_dead_kubernetes_is_one_line_unless_it_is_behind_a_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for master in ("k8s://https://127.0.0.1:1", "k8s://127.0.0.1:1"):
        with pytest.raises(ConnectError, match="127.0.0.1:1: Connection refused.; check that"):
            cluster.check_master(master)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:2")
    cluster.check_master("k8s://https://127.0.0.1:1")


def test_a_spark_connect_server_is_no_master() -> None:
    with pytest.raises(OptionError, match="Spark Connect server, which cannot run pipelines"):
        cluster.check_master("sc://127.0.0.1:15002")


@pytest.mark.parametrize("master", ["spork://127.0.0.1:7077", "host:7077", "spark://", "Local"])
def test_what_is_no_master(master: str) -> None:
    with pytest.raises(OptionError, match=f"'{master}' is no master of Spark; write spark://host"):
        cluster.check_master(master)


def test_other_clusters_are_not_connected_to() -> None:
    for master in ("yarn", "local", "local[2]", "local-cluster[2,1,99]"):
        cluster.check_master(master)


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    return tmp_path / "spark-defaults.conf"


def test_settings_of_the_cluster_replace_our_defaults(conf: Path) -> None:
    defaults = {"spark.driver.memory": "1g", "spark.python.daemon.module": "ours", "spark.a": "b"}
    assert cluster.defaults_for_cluster(defaults) == defaults
    conf.write_text(
        "# a comment\n\nspark.driver.memory  4g\nspark.python.daemon.module=theirs\nspark.x: y z\n"
    )
    assert cluster.configured_settings()["spark.x"] == "y z"
    assert cluster.defaults_for_cluster(defaults) == {
        "spark.python.daemon.module": "ours",
        "spark.a": "b",
    }


def test_which_python_executors_run(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cluster.executor_python({}) == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/env/python")
    assert cluster.executor_python({}) == "/env/python"
    conf.write_text("spark.pyspark.python /conf/python")
    assert cluster.executor_python({}) == "/conf/python"
    assert cluster.executor_python({"spark.pyspark.python": "./e/bin/python"}) == "./e/bin/python"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in "
            f"driver: {DRIVER}, PySpark cannot run with different minor versions.",
            f"executors run Python 3.9, and the driver Python {DRIVER}; ",
        ),
        (
            "org.apache.spark.SparkException: \nError from python worker:\n  /usr/bin/python3: "
            "Error while finding module specification for 'streamhouse.runtime' "
            "(ModuleNotFoundError: No module named 'streamhouse')",
            "an executor's Python has no module 'streamhouse'; ",
        ),
        (
            'java.io.IOException: Cannot run program "./environment/bin/python": error=2, No such '
            "file or directory",
            "an executor has no Python at ./environment/bin/python; ",
        ),
        (
            "An error occurred.\n: org.apache.spark.SparkException: Job aborted\n"
            "Caused by: java.io.IOException: No space left on device\n\tat x",
            "executors cannot run tasks: No space left on device",
        ),
    ],
)
def test_a_failed_check_is_one_line(text: str, message: str) -> None:
    explained = executors.explained(text)
    assert explained.startswith(message) and "\n" not in explained


def test_why_executors_end_at_once() -> None:
    log = (
        "INFO Executor added: app-1/0 on worker-1\n"
        "INFO Executor updated: app-1/0 is now RUNNING\n"
        "INFO Executor updated: app-1/0 is now EXITED (Command exited with code 1)\n"
        "INFO Executor updated: app-1/1 is now FAILED (java.io.IOException: no)\n"
    )
    assert executors._start_failure(log) == "2 ended at once (java.io.IOException: no)"
    killed = "ERROR Application has been killed. Reason: Master removed our application: FAILED\n"
    assert executors._start_failure(killed) == "Master removed our application: FAILED"
    assert executors._start_failure("INFO Executor updated: app-1/0 is now RUNNING") is None


def _problem(packages: Mapping[str, str], *probes: tuple[Mapping[str, str], str, str]) -> object:
    (problem,) = executors._Probe(probes, packages)([1])
    return problem


def test_an_executor_names_what_it_lacks(tmp_path: Path) -> None:
    assert _problem(executors._versions()) is None
    assert "has duckdb " in str(_problem({"duckdb": "0.1"}))
    assert "has nothing-here (not installed), and the driver 1" in str(
        _problem({"nothing-here": "1"})
    )
    warehouse = {"warehouse": str(tmp_path)}
    with executors._probes([warehouse]) as probes:
        assert _problem({}, *probes) is None
        elsewhere = [(warehouse, path + "x", word) for _, path, word in probes]
        assert "does not see the warehouse" in str(_problem({}, *elsewhere))
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_without_executors_is_reported_once() -> None:
    now, counts, messages = 0.0, iter([1, *[0] * 9, 1, 1, 0, 1]), list[str]()
    watch = executors.ExecutorWatch(lambda: next(counts), messages.append, lambda: now)
    for second in range(0, 28, 2):
        now = float(second)
        watch.step()
        watch.step()
    assert [text.split(";")[0] for text in messages] == [
        "no executor runs any more",
        "an executor runs again",
    ]


def test_settings_of_the_command_line() -> None:
    given = spark_options("yarn", ["spark.executor.memory=2g", "spark.x=a=b"], True)
    assert given == SparkOptions("yarn", {"spark.executor.memory": "2g", "spark.x": "a=b"}, True)
    with pytest.raises(OptionError, match="'executor.memory' is not a setting of Spark"):
        spark_options("yarn", ["executor.memory=2g"])
    with pytest.raises(OptionError, match="--conf takes KEY=VALUE"):
        spark_options("yarn", ["spark.x"])
    assert issubclass(ClusterError, ConnectError)
