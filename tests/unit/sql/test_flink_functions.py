"""docs/reference/functions.md: each function of Flink's tables, and what it is here.

`fixtures/flink_functions.txt` has the forms of Flink's `docs/data/sql_functions.yml`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.documents import ROOT

from streamhouse.errors import StreamhouseError

if TYPE_CHECKING:
    from tests.unit.sql.conftest import Catalog

FORMS = (Path(__file__).parent / "fixtures" / "flink_functions.txt").read_text().splitlines()
ROWS = "(VALUES (1, 'a'), (2, 'b')) AS t (x, s)"
_CELL = re.compile(r"(?<!\\)\|")
_READS_ROWS = re.compile(r"\b(x|s)\b(?!')")


class Entry(NamedTuple):
    """A row of the table."""

    form: str
    verdict: str
    how: str
    example: str
    text: str

    @property
    def query(self) -> str:
        """The example as a query; its value as a text."""
        rows = f" FROM {ROWS}" if self.verdict == "refused" or self._aggregates else ""
        groups = " GROUP BY x, s" if self.example.startswith("GROUPING") else ""
        displayed = self.example if self.verdict == "refused" else f"CAST({self.example} AS STRING)"
        return f"SELECT {displayed}{rows}{groups}"

    @property
    def _aggregates(self) -> bool:
        outside = re.sub(r"'[^']*'", "''", self.example)
        return bool(_READS_ROWS.search(outside)) or self.example.startswith("COUNT(")


def _entries() -> list[Entry]:
    result = []
    for line in (ROOT / "docs/reference/functions.md").read_text().splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in _CELL.split(line)[1:-1]]
        if len(cells) == 5 and cells[1] in ("same", "differs", "refused"):
            result.append(Entry(*(cell.strip("`") for cell in cells)))
    return result


ENTRIES = _entries()


def test_each_function_of_flink_has_a_verdict() -> None:
    assert [entry.form for entry in ENTRIES] == FORMS


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry.form for entry in ENTRIES])
def test_the_verdict_holds(catalog: Catalog, entry: Entry) -> None:
    assert bool(entry.how) == (entry.verdict == "differs")
    if entry.verdict != "refused":
        result = [row[0] for row in catalog.query(entry.query)]
        assert ", ".join("NULL" if one is None else one for one in result) == entry.text
        return
    with pytest.raises(StreamhouseError) as caught:
        catalog.query(entry.query)
    assert "; " in str(caught.value)
