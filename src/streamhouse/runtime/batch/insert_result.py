"""What a bounded INSERT has written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class InsertResult:
    """How many rows an INSERT produced, and how many of them were new or changed existing rows.

    If the rows are written without a comparison with the table, all count as inserted. `hidden`
    rows cannot be seen after it.
    """

    rows: int
    inserted: int
    updated: int = 0
    hidden: int = 0

    def __str__(self) -> str:
        if not self.hidden:
            return self._written()
        return (
            f"{self._written()}; {self.hidden:,} cannot be seen: a record with a greater "
            "'sequence.field' has deleted the key"
        )

    def _written(self) -> str:
        text = f"{self.rows:,} {'row' if self.rows == 1 else 'rows'}"
        if self.inserted == self.rows:
            return f"{text} written"
        return f"{text}: {self.inserted:,} inserted, {self.updated:,} updated, the others unchanged"
