"""The flags of Paimon's sync actions: the names of Paimon tables, and which tables are followed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from streamhouse.errors import OptionError
from streamhouse.runtime.sync.options import SyncOptions, sync_database_options

CONF = {"hostname": "db", "username": "u", "password": "p", "database-name": "shop_.*"}


def options(**flags: Any) -> SyncOptions:
    return sync_database_options({"warehouse": "w"}, "ods", CONF, **flags)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, "ods.Orders"),
        ({"table_prefix": "p_", "table_suffix": "_s"}, "ods.p_Orders_s"),
        ({"table_prefix": "p_", "table_prefix_db": {"SHOP_EU": "eu_"}}, "ods.eu_Orders"),
        ({"table_suffix": "_s", "table_suffix_db": {"shop_us": "_us"}}, "ods.Orders_s"),
        ({"table_prefix": "p_", "table_mapping": {"orders": "sales"}}, "ods.sales"),
        ({"merge_shards": False}, "ods.shop_eu_Orders"),
        ({"merge_shards": False, "table_mapping": {"shop_eu_orders": "eu"}}, "ods.eu"),
    ],
)
def test_names_of_tables(flags: Mapping[str, Any], expected: str) -> None:
    assert options(**flags).target(("shop_eu", "Orders")) == expected


def test_databases_are_included_and_excluded() -> None:
    tables = options(including_dbs="shop_(eu|us)", excluding_dbs=".*us").tables
    assert tables.selects("shop_eu", "orders")
    assert not tables.selects("shop_us", "orders")
    assert not tables.selects("shop_cn", "orders")
    assert not tables.selects("eu", "orders")
    with pytest.raises(OptionError, match="'\\(' is not a regular expression"):
        options(excluding_dbs="(")


def test_partition_keys_of_single_tables() -> None:
    found = options(multiple_table_partition_keys={"orders": "day,hour"}).partition_keys_of
    assert found == {"orders": ("day", "hour")}


def test_an_unknown_argument_names_the_nearest() -> None:
    with pytest.raises(TypeError, match="argument 'table_prefx'; did you mean 'table_prefix'"):
        options(table_prefx="x")


def test_the_drivers_option_for_tinyint_1_is_that_of_the_mapping() -> None:
    key = "jdbc.properties.tinyInt1isBit"
    assert "tinyint1-not-bool" in with_conf({key: "false"}).mapping.modes
    assert not with_conf({key: "true"}).mapping.modes
    other = with_conf({"treat-tinyint1-as-boolean.enabled": "false"})
    assert "tinyint1-not-bool" in other.mapping.modes
    with pytest.raises(OptionError, match="contradicts --type-mapping tinyint1-not-bool"):
        with_conf({key: "true"}, type_mapping=["tinyint1-not-bool"])


def test_options_of_the_source_without_effect_are_named() -> None:
    found = with_conf({"debezium.max.batch.size": "9", "debezium.include.schema.comments": "true"})
    (notice,) = found.notices
    assert notice.startswith("--mysql-conf debezium.max.batch.size has no effect: there is no")


def with_conf(conf: Mapping[str, str], **flags: Any) -> SyncOptions:
    return sync_database_options({"warehouse": "w"}, "ods", {**CONF, **conf}, **flags)
