"""Updates of which only the `-U` is in the result remove the record from a table that removes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.sql.conftest import Catalog

REMOVING = "'merge-engine' = 'partial-update', 'partial-update.remove-record-on-delete' = 'true'"
KEYED = "CREATE TABLE {} (id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH ({})"
INTO = "INSERT INTO removing SELECT id, name FROM customers_cdc"


@pytest.fixture
def shop(catalog: Catalog) -> Catalog:
    catalog.add(
        KEYED.format("removing", REMOVING) + ";" + KEYED.format("plain_keyed", "'bucket'='1'")
    )
    return catalog


def changes(*rows: tuple[str, int, str | None, str]) -> list[dict[str, Any]]:
    names = ("rowkind", "id", "name", "country")
    return [dict(zip(names, row, strict=True)) for row in rows]


LEAVES_AND_RETURNS = changes(
    ("-U", 1, "Ann", "NO"), ("+U", 1, "Ann", "JP"), ("-U", 1, "Ann", "JP"), ("+U", 1, None, "NO")
)


def test_a_row_that_leaves_a_where_is_removed(shop: Catalog) -> None:
    found = shop.rows(f"{INTO} WHERE country = 'NO'", LEAVES_AND_RETURNS)
    assert found == [(1, "Ann", "-D"), (1, None, "+U")]


def test_an_update_within_the_where_stays_an_update(shop: Catalog) -> None:
    update = changes(("-U", 1, "Ann", "NO"), ("+U", 1, "Eva", "NO"))
    assert shop.rows(f"{INTO} WHERE country = 'NO'", update) == [(1, "Ann", "-U"), (1, "Eva", "+U")]


def test_the_update_of_another_key_may_follow(shop: Catalog) -> None:
    rows = changes(
        ("-U", 1, "Ann", "NO"),
        ("-U", 2, "Ben", "NO"),
        ("+U", 2, "Bea", "NO"),
        ("-D", 3, "Cyn", "NO"),
    )
    kinds = [row[-1] for row in shop.rows(INTO, rows)]
    assert kinds == ["-U", "-U", "+U", "-D"]


def test_a_row_that_leaves_an_inner_lookup_is_removed(shop: Catalog) -> None:
    sql = (
        "INSERT INTO removing SELECT c.id, c.name FROM customers_cdc AS c JOIN rates "
        "FOR SYSTEM_TIME AS OF PROCTIME() AS r ON c.country = r.country"
    )
    found = shop.rows(sql, LEAVES_AND_RETURNS, [{"country": "NO", "rate": 1.0}])
    # The row in JP may have had a match before; the writer drops its `-U`, as the key is upserted.
    assert found == [(1, "Ann", "-D"), (1, "Ann", "-U"), (1, None, "+U")]


def test_a_row_that_gets_another_key_is_removed_from_its_old_one(shop: Catalog) -> None:
    sql = "INSERT INTO removing SELECT CHAR_LENGTH(name), country FROM customers_cdc"
    moved = changes(("-U", 1, "Ann", "NO"), ("+U", 1, "Anna", "NO"))
    assert shop.rows(sql, moved) == [(3, "NO", "-D"), (4, "NO", "+U")]


def test_a_row_that_moves_to_another_part_of_a_union_stays(shop: Catalog) -> None:
    sql = (
        f"{INTO} WHERE country = 'NO' UNION ALL "
        "SELECT id, UPPER(name) FROM customers_cdc WHERE country = 'JP'"
    )
    assert shop.rows(sql, LEAVES_AND_RETURNS) == [
        (1, "Ann", "-U"), (1, "ANN", "+U"), (1, "ANN", "-U"), (1, None, "+U")
    ]  # fmt: skip
    left = changes(("-U", 1, "Ann", "NO"), ("+U", 1, "Ann", "CL"))
    assert shop.rows(sql, left) == [(1, "Ann", "-D")]


def test_other_tables_get_the_row_kinds_of_the_source(shop: Catalog) -> None:
    sql = "INSERT INTO plain_keyed SELECT id, name FROM customers_cdc WHERE country = 'NO'"
    assert [row[-1] for row in shop.rows(sql, LEAVES_AND_RETURNS)] == ["-U", "+U"]
