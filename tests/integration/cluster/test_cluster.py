"""A pipeline on a Spark standalone cluster whose workers are on other hosts: nothing is lost.

The hosts share one folder, with the warehouse, and nothing else that a run makes (`hosts`).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.integration.cluster.hosts import Cluster, Host, cluster, why_not
from tests.integration.conftest import Installed
from tests.integration.object_store.faulty_proxy import FaultyProxy
from tests.integration.runtime import revenue
from tests.integration.runtime.conftest import Ended, Run, Shop
from tests.integration.runtime.test_staged_views import tasks as staged_tasks
from tests.integration.runtime.test_views import rows as counted
from tests.mysql_server import Server

from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB
from streamhouse.demo.s3_server import BUCKET, S3Server
from streamhouse.paimon.java.installed_java import java_command
from streamhouse.paimon.java.jvm import spark_jars
from streamhouse.runtime.audit.audit import audit
from streamhouse.runtime.execute import execute
from streamhouse.runtime.state.checkpoint import VIEWS, Checkpoint, checkpoints_of
from streamhouse.state.manifest import Manifest
from streamhouse.state.store import StateStore

EXECUTOR = "CoarseGrainedExecutorBackend"
WORKER = "deploy.worker.Worker"
RATE = 400
SKIPPED = """
################################################################################
##  THE CLUSTER TESTS DID NOT RUN: {why}.
##  Nothing has shown that pipelines work with executors on other hosts.
################################################################################
"""


class ClusterRun(Run):
    """A run on the cluster, whose driver listens for the workers' connections.

    A cluster is six JVMs more than a run, so on a busy machine its starts take several minutes.
    """

    deadline_s = 600

    def closed(self) -> None:
        pass


pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with two workers of one core each."""
    why = why_not()
    if why is not None:
        print(SKIPPED.format(why=why), file=sys.__stderr__, flush=True)
        pytest.skip(why)
    with cluster(tmp_path_factory.mktemp("shared")) as made:
        yield made


@pytest.fixture
def shop(hosts: Cluster, tmp_path: Path) -> Iterator[Shop]:
    """A warehouse in the shared folder; scripts and output are the driver's."""
    made = Shop(tmp_path, place=hosts.shared / "warehouse")
    yield made
    for run in made.runs:
        if run.process.poll() is None:
            run.kill()
    shutil.rmtree(made.path, ignore_errors=True)


@pytest.fixture(scope="module")
def mysql(
    hosts: Cluster, installed: Installed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MariaDB]:
    """A server that the other hosts reach."""
    folder = installed(tmp_path_factory.mktemp("mysql"))
    with Server(folder, server_options=["--bind-address=0.0.0.0"]) as server:
        yield server


def start(shop: Shop, hosts: Cluster, text: str, *words: str) -> ClusterRun:
    script = str(shop.script(text))
    arguments = ["run", script, "--warehouse", str(shop.path), *hosts.options, *words]
    run = ClusterRun(shop.folder, arguments, {})
    shop.runs.append(run)
    return run


def settle(shop: Shop, hosts: Cluster, text: str) -> Ended:
    ended = start(shop, hosts, text, "--until-caught-up").wait()
    assert ended.code == 0, ended.err
    return ended


def orders(shop: Shop) -> int:
    """How many orders have been committed."""
    table = shop.warehouse.table("default.orders")
    number = table.latest_snapshot_id()
    found = None if number is None else table.snapshots.find(number)
    return 0 if found is None else int(found.total_record_count or 0)


def people(server: MariaDB, hosts: Cluster) -> str:
    """A table of MySQL, and the query that follows it."""
    server.execute("CREATE DATABASE IF NOT EXISTS shop")
    server.execute(
        "DROP TABLE IF EXISTS shop.people",
        "CREATE TABLE shop.people (id INT PRIMARY KEY, seen INT NOT NULL)",
        "INSERT INTO shop.people SELECT seq, 0 FROM seq_1_to_1000",
        database="shop",
    )
    return f"""
    CREATE TEMPORARY TABLE people_in_mysql (id INT, seen INT, PRIMARY KEY (id) NOT ENFORCED) WITH (
      'connector' = 'mysql-cdc', 'hostname' = '{hosts.network.address}', 'port' = '{server.port}',
      'username' = '{USER}', 'password' = '{PASSWORD}', 'database-name' = 'shop',
      'table-name' = 'people');
    CREATE TABLE IF NOT EXISTS people (id INT, seen INT, PRIMARY KEY (id) NOT ENFORCED) WITH (
      'bucket' = '1');
    INSERT INTO people SELECT id, seen FROM people_in_mysql;
    """


def change(server: MariaDB, number: int) -> None:
    """Change, delete and add some people."""
    server.execute(
        f"UPDATE shop.people SET seen = seen + 1 WHERE id % 7 = {number % 7}",
        f"DELETE FROM shop.people WHERE id = {number + 10}",
        f"INSERT INTO shop.people VALUES ({10_000 + number}, {number})",
    )


def check(shop: Shop, server: MariaDB, rows: int) -> None:
    """All orders once, the view, and what MySQL has; the audit, of tables that have one."""
    revenue.check(shop, orders=rows)
    expected = server.execute("SELECT id, seen FROM shop.people")
    assert sorted((row["id"], row["seen"]) for row in shop.rows("people")) == sorted(expected)
    for table in ("orders", "country_sales"):
        found = audit(shop.warehouse.options, f"default.{table}")
        assert found.equal, found.differences


def lose_worker(hosts: Cluster, number: int) -> None:
    """Kill a worker and its executor, and start the worker again."""
    host = hosts.worker_hosts[number]
    assert host.kill(EXECUTOR) and host.kill(WORKER)
    hosts.start_worker(number)


def test_a_lost_worker_and_a_lost_driver_change_nothing(
    hosts: Cluster, shop: Shop, mysql: MariaDB
) -> None:
    rows = 6_000
    shop.do(revenue.TABLES + revenue.CUSTOMERS)
    script = revenue.whole(rows, RATE) + people(mysql, hosts)
    run = start(shop, hosts, script)
    run.until(lambda: orders(shop) > 400 and shop.rows("people"))
    change(mysql, 1)
    lose_worker(hosts, 0)
    before = orders(shop)
    run.until(lambda: orders(shop) > before + 400)
    run.kill_driver()
    change(mysql, 2)
    settle(shop, hosts, script)
    check(shop, mysql, rows)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_kills_at_random_times(hosts: Cluster, shop: Shop, mysql: MariaDB, seed: int) -> None:
    """Workers and executors, the driver, the master, and the master's network."""
    random_times, rows = random.Random(seed), 30_000
    shop.do(revenue.TABLES + revenue.CUSTOMERS)
    script = revenue.whole(rows, RATE) + people(mysql, hosts)
    run = start(shop, hosts, script)
    acts: list[Callable[[], object]] = [
        partial(lose_worker, hosts, 0),
        partial(lose_worker, hosts, 1),
        lambda: hosts.worker_hosts[0].kill(EXECUTOR),
        lambda: hosts.worker_hosts[1].kill("pyspark.daemon"),
        partial(cut_master, hosts),
        partial(restart_master, hosts),
    ]
    random_times.shuffle(acts)
    for number, act in enumerate([*acts, None]):
        before = orders(shop)
        run.until(partial(_more, shop, before + 200))
        time.sleep(random_times.uniform(0, 3))
        change(mysql, number)
        if act is not None:
            act()
        if act is None or number % 2:
            run.kill_driver()
            run = start(shop, hosts, script)
    run.kill()
    settle(shop, hosts, script)
    check(shop, mysql, rows)


def cut_master(hosts: Cluster) -> None:
    hosts.master_host.cut()
    time.sleep(10)
    hosts.master_host.join()


def restart_master(hosts: Cluster) -> None:
    """A master without recovery forgets its applications and its workers."""
    assert hosts.master_host.kill("deploy.master.Master")
    time.sleep(2)
    hosts.start_master()


def _more(shop: Shop, than: int) -> bool:
    return orders(shop) > than


@pytest.mark.soak
def test_what_executors_lack_is_reported_in_one_line(hosts: Cluster, shop: Shop) -> None:
    shop.do(revenue.TABLES + revenue.CUSTOMERS)
    script = revenue.whole(10, 100)
    python, driver = "spark.pyspark.python", "spark.driver.host"
    lacking = {
        "an executor has no Python at /nowhere/python": f"{python}=/nowhere/python",
        "an executor's Python has no module": f"{python}=/usr/bin/python3",
        "no executor of": f"{driver}={hosts.network.prefix}.250",
    }
    for message, setting in lacking.items():
        ended = start(shop, hosts, script, f"--conf={setting}").wait()
        lines = [line for line in ended.err.splitlines() if not line.startswith("notice: ")]
        assert ended.code == 1 and len(lines) == 1 and message in lines[0], ended.err
    apart = Shop(shop.folder)
    apart.do(revenue.TABLES + revenue.CUSTOMERS)
    ended = start(apart, hosts, script).wait()
    assert ended.code == 1 and "does not see the warehouse" in ended.err, ended.err


_TOTALS = "SELECT customer, COUNT(*) AS n, MAX(price) AS most FROM orders GROUP BY customer"


@pytest.mark.soak
def test_a_view_in_an_object_store_goes_on_from_what_it_keeps_on_any_host(
    hosts: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both hosts refresh it from changes; a lost host and a lost driver let nothing be rebuilt."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with S3Server() as server, FaultyProxy(server.port, hosts.network.address) as store:
        options = server.options(store.url)
        lake = f"s3://{BUCKET}/lake"
        words = [f"--option={key}={value}" for key, value in options.items()]
        # So many that the few new rows are not merged with them.
        digits = (
            "(SELECT * FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS d (n))"
        )
        execute(
            {"warehouse": lake, **server.options()},
            "CREATE TABLE orders (id BIGINT PRIMARY KEY NOT ENFORCED, customer INT, price INT) "
            "WITH ('bucket' = '1'); INSERT INTO orders SELECT -1 - a.n - 10 * b.n - 100 * c.n - "
            f"1000 * d.n, b.n, c.n FROM {digits} a, {digits} b, {digits} c, {digits} d",
        )
        script = tmp_path / "views.sql"
        script.write_text(f"""
            SET 'view.refresh-strategy' = 'incremental';
            CREATE TEMPORARY TABLE made (id BIGINT, customer INT, price INT) WITH (
              'connector' = 'datagen', 'number-of-rows' = '20000', 'rows-per-second' = '200',
              'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '20000',
              'fields.customer.min' = '1', 'fields.customer.max' = '50');
            INSERT INTO orders SELECT * FROM made;
            CREATE MATERIALIZED VIEW IF NOT EXISTS totals AS {_TOTALS};""")

        def started() -> ClusterRun:
            arguments = ["run", str(script), "--warehouse", lake, *words, *hosts.options]
            return ClusterRun(tmp_path, arguments, {})

        checkpoint = Checkpoint(checkpoints_of(lake), VIEWS, "default.totals")

        def kept() -> Manifest | None:
            newest = StateStore.of(checkpoint.path).newest
            return newest if newest is not None and newest.arrangements else None

        def moved(batches: int) -> bool:
            now = kept()
            return now is not None and now.batch >= batches

        run = started()
        run.until(lambda: kept() is not None)
        first = kept()
        assert first is not None
        run.until(lambda: moved(first.batch + 6))
        found = {host.name: _segments(host) for host in hosts.worker_hosts}
        lose_worker(hosts, 0)
        run.until(lambda: moved(first.batch + 12))
        run.kill_driver()
        run = started()
        run.until(lambda: moved(first.batch + 18))
        last = kept()
        run.signal(signal.SIGTERM)
        assert run.wait().code == 0
    assert last is not None and last.files & first.files, "the kept rows were computed anew"
    assert all(found.values()), found


_PAIRS = """SELECT o.customer, c.name, COUNT(*) AS n, MAX(o.price) AS most FROM orders AS o
JOIN customers AS c ON o.customer = c.id GROUP BY o.customer, c.name"""
_NAMES = "SELECT name, SUM(n) AS n, MAX(most) AS most FROM pairs_of GROUP BY name"


@pytest.mark.soak
def test_a_large_refresh_uses_all_hosts_and_survives_the_loss_of_one(
    hosts: Cluster, shop: Shop
) -> None:
    """A host is lost while the other one reads what it has sent, and then the driver."""
    digits = "(SELECT * FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS d (n))"
    number = "a.n + 10 * b.n + 100 * c.n + 1000 * d.n + 10000 * e.n"
    tables = ", ".join(f"{digits} {name}" for name in "abcde")
    shop.do(
        "CREATE TABLE orders (id INT, customer INT, price INT); "
        "CREATE TABLE customers (id INT, name STRING); INSERT INTO customers SELECT a.n + 10 * b.n "
        f"+ 100 * c.n, CONCAT('c', CAST(b.n AS STRING)) FROM {digits} a, {digits} b, {digits} c"
    )
    for part in range(4):
        shop.do(f"INSERT INTO orders SELECT {number}, ({number}) % 997, {part} FROM {tables}")
    names = _NAMES.replace("pairs_of", f"({_PAIRS})")
    script = f"""SET 'view.parallel-rows' = '1000'; SET 'parallelism.default' = '6';
        CREATE MATERIALIZED VIEW IF NOT EXISTS pairs AS {_PAIRS};
        CREATE MATERIALIZED VIEW IF NOT EXISTS names AS {names};"""
    run = start(shop, hosts, script)
    run.until(lambda: all(map(_shuffled, hosts.worker_hosts)))
    lose_worker(hosts, 0)
    time.sleep(2)
    run.kill_driver()
    run = start(shop, hosts, script, "--until-caught-up")
    run.until(lambda: any(map(_shuffled, hosts.worker_hosts)))
    assert hosts.worker_hosts[1].kill(EXECUTOR)
    ended = run.wait()
    assert ended.code == 0, ended.err
    for view, query in (("pairs", _PAIRS), ("names", names)):
        assert counted(shop, f"SELECT * FROM {view}") == counted(shop, query)
        assert staged_tasks(shop, f"default.{view}")[0] == 6
        assert audit(shop.warehouse.options, f"default.{view}").equal


def _shuffled(host: Host) -> bool:
    """Whether executors of a host have files that others read."""
    return any(path.stat().st_size for path in host.temporary.glob("**/shuffle_*.data"))


def _segments(host: Host) -> int:
    """How many segments the executors of a host have copied."""
    return len(list(host.temporary.glob("**/streamhouse-state/*/*/*.arrow")))


@pytest.mark.soak
def test_procedures_run_on_the_cluster(hosts: Cluster, shop: Shop) -> None:
    """Compaction needs Paimon's jar there, sorting the Rust core only."""
    shop.do("CREATE TABLE t (k INT, p INT, PRIMARY KEY (p, k) NOT ENFORCED) "
            "PARTITIONED BY (p) WITH ('bucket' = '2')")  # fmt: skip
    for _ in range(3):
        shop.do("INSERT INTO t VALUES " + ", ".join(f"({n}, {n % 4})" for n in range(40)))
    command = [
        "call",
        "sys.compact(`table` => 'default.t', options => 'sink.parallelism=4')",
        "--format",
        "json",
    ]
    run = ClusterRun(shop.folder, [*command, "--warehouse", str(shop.path), *hosts.options], {})
    shop.runs.append(run)
    ended = run.wait()
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)[0]["files_after"] < json.loads(ended.out)[0]["files_before"]
    assert len(shop.rows("t")) == 40


@pytest.mark.soak
def test_the_thrift_server_reads_on_the_cluster(hosts: Cluster, shop: Shop) -> None:
    shop.do("CREATE TABLE t (k INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket' = '2')")
    shop.do("INSERT INTO t VALUES " + ", ".join(f"({n})" for n in range(100)))
    port = shop.folder / "port"
    words = ["thrift", "--warehouse", str(shop.path), "--port", "0", "--port-file", str(port)]
    run = ClusterRun(shop.folder, [*words, "--no-password", *hosts.options], {})
    shop.runs.append(run)
    run.until(lambda: port.exists() and port.read_text().endswith("\n"))
    jars = os.pathsep.join(map(str, spark_jars()))
    done = subprocess.run(
        [java_command(), "-cp", jars, "org.apache.hive.beeline.BeeLine", "-n", "me",
         "-u", f"jdbc:hive2://127.0.0.1:{port.read_text().strip()}", "--outputformat=csv2",
         "--silent=true", "-e", "SELECT COUNT(*), SUM(k) FROM `default`.t"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.split()[-1] == "100,4950", done.stdout + done.stderr + run.err
    run.signal(signal.SIGTERM)
    assert run.wait().code == 0
