"""How far behind a reader of a table is, in snapshots and seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.source import Lag

if TYPE_CHECKING:
    from tests.unit.paimon.conftest import Lab


@pytest.fixture
def written(lab: Lab) -> Lab:
    """A table `db.t` of three snapshots."""
    table = lab.make("t")
    for number in (1, 2, 3):
        lab.write(table, number, [(number, number)])
    return lab


def source(lab: Lab, **options: str) -> PaimonSource:
    named = {f"scan.{key}": value for key, value in options.items()}
    return PaimonSource(lab.warehouse.options, "db.t", options=named)


def test_it_counts_from_the_first_unread_snapshot(
    written: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = source(written)
    second = written.warehouse.table("db.t").snapshot(2)
    monkeypatch.setattr("time.time", lambda: second.time_ms / 1000 + 5)
    lag = found.lag({"snapshot": 1})
    assert lag is not None and lag.snapshots == 2
    assert lag.seconds == pytest.approx(5)
    assert found.lag({"snapshot": 3}) == Lag(seconds=0.0, snapshots=0)


def test_a_first_full_read_has_no_lag_and_changes_in_parts_have(written: Lab) -> None:
    found = source(written)
    assert found.lag({}) is None
    assert found.lag({"snapshot": 2, "split": 1, "splits": 3}) is None
    lag = found.lag({"snapshot": 2, "split": 1, "splits": 3, "changes": True})
    assert lag is not None and lag.snapshots == 2


def test_snapshots_without_rows_to_read_do_not_count(written: Lab) -> None:
    written.overwrite(written.warehouse.table("db.t"), [(9, 9)])
    assert source(written, overwrite="skip").lag({"snapshot": 3}) == Lag(0.0, snapshots=0)
    lag = source(written).lag({"snapshot": 3})
    assert lag is not None and lag.snapshots == 1
