"""Spark Connect: a client of a remote Spark reads and writes tables, in batches and as a stream."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest
from tests.waiting import DEADLINE_S, looks

import streamhouse
from streamhouse.demo.mariadb import free_port
from streamhouse.runtime.spark.worker_python import worker_python

HOME = Path(pyspark.__file__).parent
TABLES = """
CREATE DATABASE shop;
CREATE TABLE shop.t (k INT PRIMARY KEY NOT ENFORCED, v STRING) WITH (
  'bucket' = '1', 'changelog-producer' = 'input');
CREATE TABLE shop.copied (k INT PRIMARY KEY NOT ENFORCED, v STRING) WITH ('bucket' = '1');
CREATE TABLE shop.streamed (k INT PRIMARY KEY NOT ENFORCED, v STRING) WITH ('bucket' = '1');
INSERT INTO shop.t VALUES (1, 'a'), (2, 'b');
"""
CLIENT = """
import sys, time
from pyspark.sql.connect.session import SparkSession
import streamhouse

port, warehouse = sys.argv[1:]
spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
streamhouse.register(spark)

def table(name, reader=None):
    return (reader or spark.read).format("paimon").option("warehouse", warehouse).load(name)

def rows(name):
    return [tuple(row) for row in table(name).orderBy("k").collect()]

assert rows("shop.t") == [(1, "a"), (2, "b")], rows("shop.t")
assert table("shop.t").where("k = 2").count() == 1
writer = table("shop.t").write.format("paimon").option("warehouse", warehouse)
writer.mode("append").save("shop.copied")
assert rows("shop.copied") == [(1, "a"), (2, "b")]

stream = table("shop.t", spark.readStream).writeStream.format("paimon")
query = (
    stream.option("warehouse", warehouse)
    .option("checkpointLocation", f"{warehouse}/.checkpoints/connect")
    .start("shop.streamed")
)
streamhouse.execute(warehouse, "INSERT INTO shop.t VALUES (1, 'z'), (3, 'c')")
deadline = time.monotonic() + 120
while rows("shop.streamed") != [(1, "z"), (2, "b"), (3, "c")]:
    assert query.isActive and time.monotonic() < deadline, query.exception()
    time.sleep(0.5)
query.stop()
print("done")
"""


@pytest.fixture
def server(tmp_path: Path, spark_conf: Path) -> Iterator[int]:
    """A Spark Connect server, which has the package installed; its port."""
    port, log = free_port(), tmp_path / "server.log"
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
    }
    words = [word for item in settings.items() for word in ("--conf", "=".join(item))]
    given = {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_CONF_DIR": str(spark_conf),
        "PYSPARK_PYTHON": worker_python(),
    }
    start = [str(HOME / "sbin/start-connect-server.sh"), "--master", "local[2]", *words]
    with log.open("wb") as out:
        process = subprocess.Popen(start, env=given, stdout=out, stderr=out, start_new_session=True)
    try:
        for _ in looks(log.read_text):
            assert process.poll() is None, log.read_text()[-3000:]
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), DEADLINE_S).close()
                break
        yield port
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.soak
def test_a_remote_session_reads_writes_and_streams(server: int, tmp_path: Path) -> None:
    warehouse = str(tmp_path / "warehouse")
    streamhouse.execute(warehouse, TABLES)
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, str(server), warehouse],
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0 and done.stdout.split()[-1] == "done", done.stderr[-3000:]
