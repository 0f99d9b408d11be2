"""The named references of a table: its tags and branches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamhouse.paimon.storage.files import Files
from streamhouse.paimon.storage.snapshots import Snapshot, from_json

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table


class References:
    """Lists the tags and branches of a table, as its folder has them now."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def tags(self) -> list[str]:
        """The names of the table's tags, sorted."""
        return _names_with_prefix(self._table.files, f"{self._table.root}/tag", "tag-")

    def tag(self, name: str) -> Snapshot | None:
        """The snapshot that a tag keeps; None if there is no such tag."""
        text = self._table.files.read_text(f"{self._table.root}/tag/tag-{name}")
        return None if text is None else from_json(text)

    def branches(self) -> list[str]:
        """The names of all the table's branches but main, sorted."""
        return _names_with_prefix(self._table.files, f"{self._table.location}/branch", "branch-")


def _names_with_prefix(files: Files, folder: str, prefix: str) -> list[str]:
    names = [name for name, _ in files.names(folder)]
    return sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))
