"""When tables are compacted, by their options."""

from __future__ import annotations

import pytest

from streamhouse.errors import OptionError
from streamhouse.paimon.maintenance.policy import MaintenancePolicy, Pace

PACE = Pace()


def test_a_keyed_table_is_compacted_by_its_trigger() -> None:
    policies = MaintenancePolicy.of(True, {}, PACE)
    assert (policies.commits, policies.seconds, policies.full_commits) == (5, 1.0, None)
    assert MaintenancePolicy.of(True, {"num-sorted-run.compaction-trigger": "9"}, PACE).commits == 9


@pytest.mark.parametrize(
    "options",
    [
        {"changelog-producer": "lookup"},
        {"merge-engine": "first-row"},
        {"deletion-vectors.enabled": "true"},
    ],
)
def test_tables_that_are_read_from_compacted_files_are_compacted_at_once(
    options: dict[str, str],
) -> None:
    assert MaintenancePolicy.of(True, options, PACE).commits == 1


def test_full_compactions_make_the_changelog() -> None:
    options = {"changelog-producer": "full-compaction"}
    policies = MaintenancePolicy.of(True, options, PACE)
    assert (policies.commits, policies.seconds, policies.full_commits) == (5, 0.5, 1)
    options["full-compaction.delta-commits"] = "20"
    policies = MaintenancePolicy.of(True, options, PACE)
    assert (policies.commits, policies.seconds, policies.full_commits) == (5, 1.0, 20)


def test_a_full_compaction_can_be_requested_by_time() -> None:
    policies = MaintenancePolicy.of(True, {"compaction.optimization-interval": "2 min"}, PACE)
    assert policies.full_seconds == 120


def test_append_tables_are_compacted_rarely() -> None:
    assert MaintenancePolicy.of(False, {"bucket": "-1"}, PACE) == MaintenancePolicy(100, 60.0)


def test_postpone_tables_are_not_compacted() -> None:
    assert MaintenancePolicy.of(True, {"bucket": "-2"}, PACE).commits is None


def test_a_wrong_trigger_is_reported() -> None:
    with pytest.raises(OptionError, match="num-sorted-run.compaction-trigger"):
        MaintenancePolicy.of(True, {"num-sorted-run.compaction-trigger": "0"}, PACE)


def test_who_does_not_wait_for_lookups_is_compacted_by_the_trigger() -> None:
    lookup = {"changelog-producer": "lookup"}
    assert MaintenancePolicy.of(True, lookup, PACE).commits == 1
    assert MaintenancePolicy.of(True, {**lookup, "lookup-wait": "false"}, PACE).commits == 5
    gentle = {**lookup, "lookup-compact": "gentle"}
    assert MaintenancePolicy.of(True, gentle, PACE).commits == 10
    assert (
        MaintenancePolicy.of(True, {**gentle, "lookup-compact.max-interval": "7"}, PACE).commits
        == 7
    )


@pytest.mark.parametrize("keyed", [True, False])
def test_a_write_only_table_is_left_to_another_job(keyed: bool) -> None:
    policies = MaintenancePolicy.of(
        keyed, {"write-only": "true", "changelog-producer": "lookup"}, PACE
    )
    assert (policies.commits, policies.full_commits, policies.expires) == (None, None, False)
