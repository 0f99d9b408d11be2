"""Finds tables with rows that wait for a compaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streamhouse.paimon.maintenance.service import Maintenance

if TYPE_CHECKING:
    from tests.unit.paimon.conftest import Lab


@pytest.mark.parametrize(
    ("options", "waits"),
    [
        ({"deletion-vectors.enabled": "true"}, True),
        ({"changelog-producer": "lookup"}, True),
        ({"merge-engine": "first-row"}, True),
        ({"changelog-producer": "lookup", "lookup-wait": "false"}, False),
        ({"deletion-vectors.enabled": "true", "write-only": "true"}, False),
        ({}, False),
    ],
)
def test_rows_that_show_only_once_compacted_are_waited_for(
    lab: Lab, options: dict[str, str], waits: bool
) -> None:
    table = lab.make("t", options)
    maintenance = Maintenance(lab.warehouse.options, lambda: [table.identifier])
    assert not maintenance.behind()
    lab.write(table, 1, [(1, 10)])
    assert maintenance.behind() is waits
