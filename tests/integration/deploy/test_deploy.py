"""The files of `deploy` are valid, and what their containers run works without containers."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from confluent_kafka import Producer
from tests.waiting import DEADLINE_S, until

from streamhouse.demo.kafka.broker import KafkaBroker
from streamhouse.demo.mariadb import PASSWORD, MariaDB
from streamhouse.paimon.catalog.warehouse import Warehouse

DEPLOY = Path(__file__).parents[3] / "deploy"
BIN = Path(sys.executable).parent
COMPOSE = yaml.safe_load((DEPLOY / "compose.yml").read_text())
SERVICES = COMPOSE["services"]
TOKEN = SERVICES["server"]["environment"]["STREAMHOUSE_TOKEN"]


@pytest.mark.parametrize(
    "command",
    [
        ["check-jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yml"],
        ["kubernetes-validate", "kubernetes.yaml"],
        ["hadolint", "Dockerfile"],
    ],
    ids=lambda command: command[-1],
)
def test_files_are_valid(command: list[str]) -> None:
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]], cwd=DEPLOY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def commands() -> Iterator[tuple[str, Sequence[str]]]:
    """The arguments of `streamhouse` in each file."""
    for name in ("pipeline", "server"):
        yield f"compose {name}", SERVICES[name]["command"]
    workload, _ = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    for container in workload["spec"]["template"]["spec"]["containers"]:
        yield f"kubernetes {container['name']}", container["args"]
    for unit in (DEPLOY / "systemd").glob("*.service"):
        parsed = configparser.ConfigParser(strict=False)
        parsed.optionxform = str  # type: ignore[assignment,method-assign]
        parsed.read(unit)
        program, *arguments = shlex.split(parsed["Service"]["ExecStart"])
        assert program.endswith("/streamhouse")
        yield unit.name, arguments


def test_files_run_the_same_commands() -> None:
    found = {name: list(arguments) for name, arguments in commands()}
    assert found["compose server"] == found["kubernetes server"]
    at = ["--warehouse", "/var/lib/streamhouse/warehouse"]
    command, *rest = found["compose server"]
    assert found["streamhouse-server.service"] == [command, *at, *rest]
    for name in ("kubernetes pipeline", "streamhouse-pipeline.service"):
        assert found[name][:2] == ["run", "/etc/streamhouse/shop.sql"]
    assert found["compose pipeline"] == ["run", "shop.sql"]


def test_metrics_of_rules_and_dashboard_exist(shop: Mapping[str, Any]) -> None:
    known = set(re.findall(r"(?m)^# TYPE (\w+) ", shop["metrics"]))
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
    dashboard = json.loads((DEPLOY / "grafana/streamhouse.json").read_text())
    expressions = [rule["expr"] for rule in rules]
    expressions += [each["expr"] for panel in dashboard["panels"] for each in panel["targets"]]
    named = {name for each in expressions for name in re.findall(r"streamhouse_\w+", each)}
    assert len(named) >= 10
    assert {re.sub("_bucket$", "", name) for name in named} <= known


def test_the_pipeline_runs_and_the_server_shows_it(shop: Mapping[str, Any]) -> None:
    assert shop["rows"] == [("France", 1, "20.00"), ("Portugal", 2, "12.50")]
    assert 'streamhouse_pipeline_running{pipeline="shop"} 1.0' in shop["metrics"]
    assert 'streamhouse_pipeline_restarts{pipeline="shop"} 0.0' in shop["metrics"]
    assert 'streamhouse_refreshLag{pipeline="shop",query="shop.revenue"}' in shop["metrics"]
    assert shop["without_token"] == 401


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Any]]:
    """What the pipeline and the server of `compose.yml` show, which run as processes."""
    folder = tmp_path_factory.mktemp("deploy")
    (folder / "warehouse").mkdir()
    (folder / "shop.sql").write_text((DEPLOY / "shop.sql").read_text())
    with MariaDB(folder / "mariadb") as mariadb, KafkaBroker(folder / "kafka") as broker:
        mariadb.execute(*filter(str.strip, (DEPLOY / "mariadb.sql").read_text().split(";")))
        broker.create_topic("orders", 2)
        producer = Producer({"bootstrap.servers": broker.servers})
        for number, (customer, price) in enumerate([(1, "5.00"), (2, "20.00"), (3, "7.50")]):
            order = {"id": number, "customer_id": customer, "price": price}
            producer.produce("orders", json.dumps(order))
        assert producer.flush(DEADLINE_S) == 0
        environment = {
            **os.environ,
            "STREAMHOUSE_WAREHOUSE": str(folder / "warehouse"),
            "XDG_STATE_HOME": str(folder / "state"),
        }
        servers = {
            "KAFKA": broker.servers,
            "MYSQL_HOST": "127.0.0.1",
            "MYSQL_PORT": str(mariadb.port),
            "MYSQL_PASSWORD": PASSWORD,
        }
        assert servers.keys() == SERVICES["pipeline"]["environment"].keys()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        started = [
            subprocess.Popen(
                [str(BIN / "streamhouse"), *arguments],
                cwd=folder,
                env={**environment, **more},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for arguments, more in (
                (SERVICES["pipeline"]["command"], servers),
                (
                    [each.replace("8080", port) for each in SERVICES["server"]["command"]],
                    SERVICES["server"]["environment"],
                ),
            )
        ]
        try:
            yield _shown(folder, f"http://127.0.0.1:{port}")
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait(DEADLINE_S)


def _shown(folder: Path, url: str) -> Mapping[str, Any]:
    warehouse = Warehouse(str(folder / "warehouse"))
    token = {"Authorization": f"Bearer {TOKEN}"}

    def rows() -> list[tuple[Any, ...]]:
        if "shop" not in warehouse.databases() or not warehouse.exists("shop", "revenue"):
            return []
        found = warehouse.table("shop.revenue").rows().to_pylist()
        return sorted((each["country"], each["orders"], str(each["revenue"])) for each in found)

    def metrics() -> str:
        try:
            return httpx.get(f"{url}/metrics", headers=token).text
        except httpx.TransportError:
            return ""

    until(lambda: len(rows()) == 2 and "refreshLag{" in metrics())
    return {
        "rows": rows(),
        "metrics": metrics(),
        "without_token": httpx.get(f"{url}/metrics").status_code,
    }
