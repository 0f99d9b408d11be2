"""The connector `jdbc`: its options and the SELECTs that look keys up, without a server."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.connectors.jdbc.options import (
    KNOWN,
    JdbcOptions,
    ScanOptions,
    check_hint,
    parse,
)
from streamhouse.connectors.jdbc.reader import (
    BYTES_PER_STATEMENT,
    KEYS_PER_STATEMENT,
    conditions,
    key_slices,
    statement,
)
from streamhouse.errors import OptionError, TableError
from streamhouse.mysql.values.types import MySqlColumn

BASE = {
    "url": "jdbc:mysql://db.example:3307/shop?useSSL=false&serverTimezone=Europe/Berlin",
    "table-name": "customers",
    "username": "reader",
    "password": "s3cret",
}
PARTIAL = BASE | {"lookup.cache": "partial"}
EXPIRY = "lookup.partial-cache.expire-after-write"


def test_a_url_names_the_server() -> None:
    server = parse(BASE).server
    assert (server.hostname, server.port, server.name) == ("db.example", 3307, "shop.customers")
    assert (server.tls.mode, server.server_time_zone) == ("disabled", "Europe/Berlin")
    other = parse(BASE | {"url": "jdbc:mariadb://[::1]", "table-name": "shop.c"}).server
    assert (other.address, other.name, other.tls.mode) == ("::1:3306", "shop.c", "preferred")


def test_the_cache() -> None:
    assert parse(BASE | {"driver": "com.mysql.cj.jdbc.Driver"}).describe() == "cache NONE"
    found = parse(
        PARTIAL
        | {
            "lookup.partial-cache.max-rows": "20",
            EXPIRY: "1 min",
            "lookup.partial-cache.expire-after-access": "10s",
            "lookup.partial-cache.cache-missing-key": "false",
            "lookup.max-retries": "7",
        }
    )
    assert found == JdbcOptions(
        found.server,
        True,
        max_keys=20,
        after_write_ms=60_000,
        after_access_ms=10_000,
        cache_missing=False,
    )
    assert found.server.connect_retries == 7
    assert found.describe() == (
        "cache PARTIAL, 20 keys, valid for 60000 ms, dropped 10000 ms after their last lookup, "
        "missing keys not cached"
    )


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"urll": "x"}, "unknown option 'urll'; did you mean 'url'"),
        ({"url": "jdbc:postgresql://u:s3cret@db/shop"}, "write 'jdbc:mysql://host:3306/database'"),
        ({"url": "jdbc:mysql://reader:s3cret@db/shop"}, "is not the URL of a MySQL server"),
        ({"url": "jdbc:mysql://db/shop?password=s3cret"}, "'username' and 'password'"),
        ({"url": "jdbc:mysql://db/shop?useSll=true"}, "did you mean 'useSSL'"),
        ({"url": "jdbc:mysql://db/shop?useSSL=maybe"}, "option 'url': useSSL: 'maybe'"),
        ({"url": "jdbc:mysql://db/shop?serverTimezone=Mars"}, "'url': serverTimezone: 'Mars'"),
        ({"url": "jdbc:mysql://db"}, "the database is missing"),
        ({"driver": "org.postgresql.Driver"}, "is not one of com.mysql"),
        ({"lookup.cache": "FULL"}, "'FULL' is not one of NONE, PARTIAL"),
        ({EXPIRY: "1s"}, "needs 'lookup.cache' = 'PARTIAL'"),
        ({"lookup.cache": "PARTIAL", EXPIRY: "0"}, "the least is '1ms'"),
        ({"lookup.max-retries": "-1"}, "'lookup.max-retries': -1 is too small"),
    ],
)
def test_a_wrong_option_is_an_error(extra: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as raised:
        parse(BASE | extra)
    assert message in str(raised.value)
    assert "s3cret" not in str(raised.value)


def test_each_required_option_is_checked() -> None:
    assert set(BASE) < KNOWN
    for key in ("url", "table-name", "username"):
        with pytest.raises(OptionError, match=f"option '{key}' is missing"):
            parse({k: v for k, v in BASE.items() if k != key})


def test_no_secret_is_shown() -> None:
    assert "s3cret" not in repr(parse(BASE))


def test_a_hint_sets_the_cache_and_no_login() -> None:
    check_hint({"lookup.cache": "PARTIAL", EXPIRY: "1s"}, "lookup of c")
    with pytest.raises(OptionError, match="lookup of c: unknown option 'password'"):
        check_hint({"password": "s3cret"}, "lookup of c")


def test_keys_of_earlier_releases_enable_the_cache() -> None:
    earlier = {"lookup.cache.max-rows": "7", "lookup.cache.ttl": "1 min"}
    options = parse(BASE | earlier)
    assert (options.cache, options.max_keys, options.after_write_ms) == (True, 7, 60_000)
    assert not parse(BASE | {"lookup.cache.caching-missing-key": "false"}).cache_missing
    check_hint({"lookup.cache.ttl": "1s"}, "lookup of c")
    with pytest.raises(OptionError, match="did you mean"):
        parse(BASE | {"lookup.cache.max-row": "7"})


def test_keys_are_parameters() -> None:
    server = parse(BASE).server
    text, values = statement(server, ["`id`", "`10%`"], ["id"], [(1,), (2,)])
    assert text == "SELECT `id`, `10%%` FROM `shop`.`customers` WHERE `id` IN (%s, %s)"
    assert values == [1, 2]
    text, values = statement(server, ["`n`"], ["a", "b`%"], [(1, "x'"), (2, "y")])
    assert text.endswith("WHERE (`a`, `b``%%`) IN ((%s, %s), (%s, %s))")
    assert values == [1, "x'", 2, "y"]


@given(st.lists(st.sampled_from([1, "x" * 10, "y" * 600_000]), max_size=40), st.integers(0, 2000))
def test_statements_are_bounded(values: list[Any], more: int) -> None:
    keys = [*((value,) for value in values), *((number,) for number in range(more))]
    found = list(key_slices(keys))
    assert [key for piece in found for key in piece] == keys
    for piece in found:
        size = sum(len(key[0]) if isinstance(key[0], str) else 16 for key in piece)
        assert 0 < len(piece) <= KEYS_PER_STATEMENT
        assert len(piece) == 1 or size <= BYTES_PER_STATEMENT


INT = MySqlColumn("id", "bigint", "bigint(20)")


class Server:
    """Answers the question for the least and the greatest value."""

    def __init__(self, *bounds: Any) -> None:
        self._bounds = bounds

    def rows(self, text: str) -> list[Any]:
        assert text.startswith("SELECT MIN(`id`), MAX(`id`) FROM t")
        return [self._bounds]


def ranges(column: MySqlColumn, number: int, *bounds: str | None, server: Any = None) -> list[str]:
    limits = dict(zip(("lower", "upper"), bounds, strict=False))
    scan = ScanOptions(column="id", number=number, **limits)
    return conditions(server, "t", [column], scan)


def test_ranges_of_bounds_leave_out_other_rows() -> None:
    assert ranges(INT, 1, "1", "9") == ["`id` >= 1 AND `id` <= 9"]
    assert ranges(INT, 3, "1", "9") == [
        "`id` >= 1 AND `id` < 4", "`id` >= 4 AND `id` < 7", "`id` >= 7 AND `id` <= 9"
    ]  # fmt: skip
    assert len(ranges(INT, 9, "1", "3")) == 3
    day = MySqlColumn("id", "date", "date")
    assert ranges(day, 2, "2024-01-01", "2024-01-03") == [
        "`id` >= '2024-01-01 00:00:00' AND `id` < '2024-01-02'",
        "`id` >= '2024-01-02' AND `id` <= '2024-01-03 00:00:00'",
    ]


def test_ranges_without_bounds_have_all_rows() -> None:
    assert ranges(INT, 2, server=Server("-5", "4")) == ["(`id` < 0 OR `id` IS NULL)", "`id` >= 0"]
    assert ranges(INT, 2, server=Server("7", "7")) == ["TRUE"]
    assert ranges(INT, 2, server=Server(None, None)) == ["TRUE"]
    at = MySqlColumn("id", "datetime", "datetime(6)", fraction=6)
    found = ranges(at, 2, server=Server("2024-01-01 00:00:00.5", "2024-01-01 00:00:09.9"))
    assert found == [
        "(`id` < '2024-01-01 00:00:05' OR `id` IS NULL)", "`id` >= '2024-01-01 00:00:05'"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num": "2"}, "'scan.partition.num' needs 'scan.partition.column'"),
        ({"column": "id", "num": "0"}, "'scan.partition.num': 0 is too small"),
        ({"column": "id", "num": "2", "upper-bound": "1"}, "needs 'scan.partition.lower-bound'"),
    ],
)
def test_wrong_scan_options(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(BASE | {f"scan.partition.{key}": value for key, value in options.items()})
    with pytest.raises(OptionError, match="'x' is not a number, as column 'id'"):
        ranges(INT, 2, "x", "1")
    with pytest.raises(OptionError, match="'2' is greater than"):
        ranges(INT, 2, "2", "1")
    with pytest.raises(TableError, match="must be a number, a date or a timestamp"):
        ranges(MySqlColumn("id", "text", "text"), 2)
