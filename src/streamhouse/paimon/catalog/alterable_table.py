"""What ALTER TABLE reads of a table: of a stored one, or of a draft of a dry run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from streamhouse.sql.plan import Column


class AlterableTable(Protocol):
    """A table's columns, keys and options, and the files that forbid some changes."""

    @property
    def identifier(self) -> str: ...
    @property
    def columns(self) -> tuple[Column, ...]: ...
    @property
    def primary_key(self) -> tuple[str, ...]: ...
    @property
    def partition_keys(self) -> tuple[str, ...]: ...
    @property
    def options(self) -> Mapping[str, str]: ...
    @property
    def schema(self) -> Mapping[str, Any]:
        """The table's schema file: its `fields` and `options`."""

    def latest_snapshot_id(self) -> int | None: ...
    def splits(self) -> list[bytes]: ...
    def has_values(self, columns: Sequence[str]) -> bool:
        """Whether a file has a value of one of these columns, also in rows that are replaced."""
