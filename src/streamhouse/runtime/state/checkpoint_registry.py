"""Registers in a warehouse in an object store which checkpoint each of its queries has.

Checkpoints are on a machine's disk, the warehouse is not. Without its checkpoint, on another
machine or after the disk was lost, a query would begin anew and write its rows a second time. So
the warehouse records the id of each query, in `.checkpoints/<pipeline>/<name>.json`.
"""

import json
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Self

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.storage.files import files_of, is_local
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles
from streamhouse.runtime.state.checkpoint import FOLDER, Checkpoint, checkpoints_of
from streamhouse.sql.options.store_options import is_object_store

_announced: set[str] = set()


def announce_checkpoints(warehouse: str, notice: Callable[[str], None]) -> None:
    """Say once where the checkpoints of a warehouse are, if they are not in it."""
    if not is_local(warehouse) and warehouse not in _announced:
        _announced.add(warehouse)
        notice(
            f"the checkpoints of queries are on this machine, in {checkpoints_of(warehouse)}; "
            "--checkpoints DIR sets another folder"
        )


@dataclass(frozen=True)
class RegisteredCheckpoint:
    """The record of a query: its id, and where its checkpoint is."""

    id: str
    host: str
    checkpoint: str

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse a record; None if it is damaged."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None


def register_checkpoint(warehouse: Mapping[str, str], checkpoint: Checkpoint) -> None:
    """Record that the query of this checkpoint is the one that runs; call it before it writes.

    No effect for local warehouses. Raises `StreamhouseError` if the query has run with another
    checkpoint.
    """
    files = _files(warehouse)
    if files is None:
        return
    path = f"{_place(warehouse, checkpoint)}.json"
    own = RegisteredCheckpoint(checkpoint.query_id(), socket.gethostname(), str(checkpoint.path))
    if files.create(path, json.dumps(asdict(own))) is not None:
        return
    other = RegisteredCheckpoint.parse(files.read_text(path) or "")
    if other is not None and other.id == own.id:
        return
    place = f"{path}, which is damaged" if other is None else f"{other.checkpoint} on {other.host}"
    raise StreamhouseError(
        f"the query {checkpoint.path.name} of pipeline '{checkpoint.pipeline}' has run with "
        f"another checkpoint ({place}) and would write its rows again; run it there, give a copy "
        "of that folder with --checkpoints DIR, or run it once with --from-scratch"
    )


def registered_checkpoints(
    warehouse: Mapping[str, str], checkpoint: Checkpoint
) -> dict[str, RegisteredCheckpoint | None]:
    """The records of the query of a target, and of its parts, by path; None for a damaged one."""
    files = _files(warehouse)
    if files is None:
        return {}
    folder, own = _place(warehouse, checkpoint).rpartition("/")[0], checkpoint.path.name
    paths = [
        f"{folder}/{name}"
        for name, is_folder in files.names(folder)
        if not is_folder and (name == f"{own}.json" or name.startswith(f"{own}+"))
    ]
    return {path: RegisteredCheckpoint.parse(files.read_text(path) or "") for path in paths}


def unregister_checkpoints(warehouse: Mapping[str, str], checkpoint: Checkpoint) -> None:
    """Forget the checkpoints of a target, and of its parts, so that the next run may begin anew."""
    files = _files(warehouse)
    if files is not None:
        for path in registered_checkpoints(warehouse, checkpoint):
            files.delete_object(path)
            files.delete(path.removesuffix(".json"))


def shared_folder(warehouse: Mapping[str, str], checkpoint: Checkpoint) -> str | None:
    """The folder in an object store for what all hosts need of a checkpoint; None in a local
    warehouse, which has the checkpoint itself."""
    return None if _files(warehouse) is None else _place(warehouse, checkpoint)


def _files(warehouse: Mapping[str, str]) -> ObjectFiles | None:
    if not warehouse or not is_object_store(warehouse["warehouse"]):
        return None
    files = files_of(warehouse["warehouse"], warehouse)
    return files if isinstance(files, ObjectFiles) else None


def _place(warehouse: Mapping[str, str], checkpoint: Checkpoint) -> str:
    folder = f"{warehouse['warehouse'].rstrip('/')}/{FOLDER}/{checkpoint.path.parent.name}"
    return f"{folder}/{checkpoint.path.name}"
