"""Identity of a table: detects that it was recreated, also in object stores."""

from __future__ import annotations

from typing import Any

import pytest

from streamhouse.paimon.storage.files import LocalFiles
from streamhouse.paimon.storage.table_identity import Identity


class NoStamps(LocalFiles):
    """Files without stamps: only reading them shows a change, as in an object store."""

    def stamp(self, path: str) -> object | None:
        return None


def seen(shop: Any, table: str, stamps: bool) -> tuple[Identity, int]:
    opened = shop.warehouse.table(table).copy({})
    if not stamps:
        opened.files = NoStamps()
    return Identity(opened), opened.snapshot(opened.latest_snapshot_id()).time_ms


@pytest.mark.parametrize("stamps", [True, False])
def test_identity_survives_commits_and_expiry(shop: Any, stamps: bool) -> None:
    table = shop.sales()
    for number in range(2):
        shop.write(table, ("Chad", number, 1.0))
    identity, time_ms = seen(shop, table, stamps)
    assert (
        identity.is_unchanged(0, 0)
        and identity.is_unchanged(2, time_ms)
        and identity.is_unchanged(2, time_ms)
    )
    assert not identity.is_unchanged(2, time_ms - 1)
    shop.write(table, ("Chad", 7, 1.0))
    assert identity.is_unchanged(2, time_ms)
    # Expired, which is no other table.
    (shop.path / "shop.db" / "sales" / "snapshot" / "snapshot-2").unlink()
    assert identity.is_unchanged(2, time_ms)
    assert identity.digest == Identity(shop.warehouse.table(table)).digest


@pytest.mark.parametrize("stamps", [True, False])
def test_recreated_table_has_another_identity(shop: Any, stamps: bool) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.0))
    identity, time_ms = seen(shop, table, stamps)
    shop.warehouse.drop_table("shop", "sales")
    assert not identity.is_unchanged(0, 0)
    shop.sales()
    shop.write(table, ("Chad", 1, 1.0))
    assert not identity.is_unchanged(0, 0) and not identity.is_unchanged(1, time_ms)
    assert identity.digest != Identity(shop.warehouse.table(table)).digest


def test_object_store_is_queried_at_intervals(shop: Any) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.0))
    identity, time_ms = seen(shop, table, False)
    identity._local = False
    assert identity.is_unchanged(1, time_ms)
    shop.warehouse.drop_table("shop", "sales")
    assert identity.is_unchanged(1, time_ms, certain=False)
    assert not identity.is_unchanged(1, time_ms, certain=True)
    identity._checked_at -= 3600.0
    assert not identity.is_unchanged(1, time_ms, certain=False)
