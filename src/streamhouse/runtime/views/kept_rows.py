"""What views and lookups keep between batches: reported, and removed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.schema.table_name import split_identifier
from streamhouse.paimon.storage.files import files_of
from streamhouse.runtime.state.checkpoint import Checkpoint, checkpoints_of
from streamhouse.runtime.state.checkpoint_registry import shared_folder
from streamhouse.state.manifest import Manifest
from streamhouse.state.store import FOLDER, LOOKUPS, StateStore


def kept_rows(warehouse: str, root: Path | None, view: str | None = None) -> list[dict[str, Any]]:
    """What each view, and each query with lookups, of a warehouse keeps, or one of them; by name.

    `root` is the folder of checkpoints, by default that of the warehouse. The name of a query is
    that of its checkpoint: its target, `database.name`.
    """
    checkpoints = (root or checkpoints_of(warehouse)).glob(f"*/{view or '*'}")
    stores = (path / name for path in checkpoints for name in (FOLDER, LOOKUPS))
    manifests = (
        (path.parent.name, StateStore(path).newest)
        for path in sorted(stores, key=lambda path: path.parent.name)
    )
    return [_record(name, manifest) for name, manifest in manifests if manifest is not None]


def remove_kept_by_dropped(options: Mapping[str, str], checkpoint: Checkpoint) -> None:
    """Remove what views without a table have kept, beside the checkpoint of another view.

    `options` are those of the warehouse's catalog. Of a warehouse in an object store, this includes
    what other hosts need.
    """
    folder, warehouse = checkpoint.path.parent, Warehouse(options)
    others = [path for path in folder.glob("*") if path != checkpoint.path]
    stores = {path.name: StateStore.of(path) for path in others}
    stores = {name: store for name, store in stores.items() if store.folder.is_dir()}
    if not stores:
        return
    databases = {split_identifier(name)[0] for name in stores} & set(warehouse.databases())
    tables = {f"{database}.{name}" for database in databases for name in warehouse.tables(database)}
    for name, store in stores.items():
        if name.partition("$")[0] not in tables:
            dropped = Checkpoint(checkpoint.root, checkpoint.pipeline, name)
            place = shared_folder(options, dropped)
            if place is not None:
                files_of(place, options).delete(f"{place}/{FOLDER}")
            store.clear()


def _record(view: str, manifest: Manifest) -> dict[str, Any]:
    vector = manifest.kept_at.get("vector", {})
    snapshots = {key.rpartition("#")[2]: position["snapshot"] for key, position in vector.items()}
    kept = [
        {
            "operator": manifest.labels.get(name, name),
            "rows": sum(file.rows for file in files),
            "bytes": sum(file.size for file in files),
            "files": len(files),
        }
        for name, files in manifest.arrangements.items()
    ]
    strategy = "incremental" if kept else "recomputed"
    return {
        "view": view,
        "batch": manifest.batch,
        "snapshots": snapshots,
        "strategy": "lookup" if "dims" in manifest.offset else strategy,
        "bytes": manifest.size,
        "files": len(manifest.files),
        "kept": kept,
    }
