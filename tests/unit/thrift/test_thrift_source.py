"""The Thrift server's data source and its authentication, without a JVM."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.serve.test_view_feed import TOP, keep
from tests.waiting import DEADLINE_S

from streamhouse.cli.commands.servers import thrift
from streamhouse.errors import OptionError, TableError
from streamhouse.thrift import server
from streamhouse.thrift.source import (
    CATALOG_VARIABLE,
    ServedSource,
    make_discoverable,
    served_schema,
)

FIND = """
from pkgutil import iter_modules
from pyspark.sql.datasource import DataSource
names = [one.name for one in iter_modules() if one.name.startswith("pyspark_")]
found = [__import__(name).DefaultSource for name in names]
assert all(issubclass(one, DataSource) for one in found)
print([one.name() for one in found], found[0]({"served": "db.t"}).name())
"""


@pytest.fixture
def shop_with_view(shop: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    shop.sales()
    keep(shop.warehouse, "big", TOP, "country", "twice")
    shop.write("shop.sales", ("Peru", 2, 2.5), ("Chad", 1, 1.5))
    monkeypatch.setenv(CATALOG_VARIABLE, json.dumps({"warehouse": str(shop.path)}))
    return shop


def rows(name: str) -> list[tuple[Any, ...]]:
    source = ServedSource({"served": name})
    reader = source.reader(source.schema())
    batches: list[Any] = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def test_tables_and_views_return_their_newest_rows(shop_with_view: Any) -> None:
    assert rows("shop.sales") == [("Chad", 1, 1.5), ("Peru", 2, 2.5)]
    assert rows("shop.big") == [("Peru", 4)]
    shop_with_view.write("shop.sales", ("Peru", 3, 2.5))
    assert rows("shop.sales")[1] == ("Peru", 3, 2.5)
    assert rows("shop.big") == [("Peru", 6)]


def test_the_schema_needs_no_rows(shop_with_view: Any) -> None:
    warehouse = shop_with_view.warehouse
    assert served_schema(warehouse, "shop.big").simpleString() == (
        "struct<country:string,twice:bigint>"
    )
    with pytest.raises(TableError, match="'shop.bag' no longer exists"):
        served_schema(warehouse, "shop.bag")


def test_nothing_can_be_written(shop_with_view: Any) -> None:
    source = ServedSource({"served": "shop.sales"})
    with pytest.raises(TableError, match="'shop.sales' is read-only here"):
        source.writer(source.schema(), False)


def test_outside_of_the_thrift_server_the_source_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(CATALOG_VARIABLE, raising=False)
    with pytest.raises(OptionError, match="use 'paimon'"):
        ServedSource({"served": "shop.sales"})
    monkeypatch.setenv(CATALOG_VARIABLE, "{}")
    with pytest.raises(OptionError, match="query the served views"):
        ServedSource({})


def test_spark_discovers_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv(CATALOG_VARIABLE, "")
    make_discoverable({"warehouse": "somewhere", "s3.secret-key": "hidden"})
    found = subprocess.run(
        [sys.executable, "-c", FIND], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    assert found.stdout.split() == ["['streamhouse']", "streamhouse"]


@pytest.mark.parametrize(
    ("host", "overrides", "password"),
    [
        ("127.0.0.1", {}, None),
        ("localhost", {"spark.driver.memory": "2g"}, "secret"),
        ("0.0.0.0", {"hive.server2.authentication": "ldap"}, None),
        ("0.0.0.0", {}, "secret"),
    ],
)
def test_allowed_logins(host: str, overrides: Mapping[str, str], password: str | None) -> None:
    server._check(host, overrides, password)


def test_a_password_and_another_login_cannot_be_combined() -> None:
    with pytest.raises(OptionError, match="a password cannot be combined"):
        server._check("127.0.0.1", {"hive.server2.authentication": "LDAP"}, "secret")


def test_the_password(tmp_path: Path) -> None:
    file, ldap = tmp_path / "password", {"hive.server2.authentication": "LDAP"}
    file.write_text("secret\n")
    assert thrift._password(file, False, {}) == "secret"
    assert thrift._password(None, True, {}) is None
    assert thrift._password(None, False, ldap) is None
    first, second = (thrift._password(None, False, {}) for _ in range(2))
    assert first is not None and len(first) >= 20 and first != second
    file.write_text("two\nlines")
    with pytest.raises(OptionError, match="one line"):
        thrift._password(file, False, {})
    with pytest.raises(OptionError, match="cannot be read"):
        thrift._password(tmp_path / "none", False, {})
    with pytest.raises(OptionError, match="cannot be combined"):
        thrift._password(file, True, {})


@pytest.mark.parametrize(
    ("host", "overrides", "message"),
    [
        ("0.0.0.0", {}, "can reach 0.0.0.0, and no login is set"),
        ("10.0.0.1", {"hive.server2.authentication": "NOSASL"}, "no login is set"),
        ("127.0.0.1", {"server2.port": "1"}, "'server2.port' is not a setting of Spark"),
        (
            "127.0.0.1",
            {"hive.server2.thrift.bind.host": "0.0.0.0"},
            "use the options --host and --port",
        ),
        (
            "127.0.0.1",
            {"spark.hadoop.hive.server2.thrift.bind.host": "0.0.0.0"},
            "use the options --host and --port",
        ),
    ],
)
def test_refused_settings(host: str, overrides: Mapping[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        server._check(host, overrides, None)


def test_environment_variables_do_not_set_the_address() -> None:
    environment = {"HIVE_SERVER2_THRIFT_BIND_HOST": "0.0.0.0", "PATH": "/bin"}
    server._forget_address(environment)
    assert environment == {"PATH": "/bin"}


def test_a_new_password_is_no_flag_of_a_client() -> None:
    passwords = {server.new_password() for _ in range(200)}
    assert len(passwords) == 200
    assert all(re.fullmatch("[0-9a-f]{36}", password) for password in passwords)
