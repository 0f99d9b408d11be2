"""What views keep leaves the disk with their tables."""

from __future__ import annotations

from pathlib import Path

from tests.unit.runtime.local_pipeline import LocalPipeline

from streamhouse.runtime.state.checkpoint import VIEWS, Checkpoint
from streamhouse.state.store import StateStore

_TABLES = "CREATE TABLE IF NOT EXISTS orders (id INT PRIMARY KEY NOT ENFORCED, price INT);"


def test_what_a_dropped_view_kept_is_removed_when_another_starts(tmp_path: Path) -> None:
    shop = LocalPipeline(tmp_path)
    shop.do(f"{_TABLES} INSERT INTO orders VALUES (1, 2)")
    views = {
        name: f"CREATE MATERIALIZED VIEW {name} AS SELECT MAX(price) AS m FROM orders;"
        for name in ("dropped", "other", "new")
    }
    folders = {
        name: StateStore.of(Checkpoint(shop.root, VIEWS, f"default.{name}").path).folder
        for name in views
    }
    shop.run(f"{_TABLES} {views['dropped']} {views['other']}")
    shop.do("DROP MATERIALIZED VIEW dropped")
    assert folders["dropped"].is_dir()
    shop.run(f"{_TABLES} {views['new']}")
    assert [name for name, folder in folders.items() if folder.is_dir()] == ["other", "new"]
