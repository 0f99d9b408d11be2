"""Tables that look keys up merge only the newest compacted row of a key, as the Java core does."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.integration.paimon.both_cores")

from tests.integration.paimon import java_rows  # noqa: E402
from tests.integration.paimon.both_cores import Game  # noqa: E402

from streamhouse.errors import OptionError  # noqa: E402
from streamhouse.paimon.catalog.warehouse import Warehouse  # noqa: E402
from streamhouse.paimon.java.sidecar import Sidecar  # noqa: E402
from streamhouse.sql.schema_changes import SetTableOption  # noqa: E402

SEED = int(os.environ.get("STREAMHOUSE_LEVELS_SEED", "1"))
STEPS = 5
SOAK_STEPS = 40
SUM = {
    "merge-engine": "aggregation",
    "fields.v.aggregate-function": "sum",
    "fields.w.aggregate-function": "last_value",
}
PARTS = {"merge-engine": "partial-update"}
LOOKUP = {"changelog-producer": "lookup"}
FORCED = {"force-lookup": "true"}
REMOVED = "remove-record-on-delete"
KINDS: dict[str, tuple[dict[str, str], str]] = {
    # The options of a table, and the kinds of rows that it takes.
    "sums": ({**SUM, **LOOKUP}, "+I +I -D"),
    "forced": ({**SUM, **FORCED}, "+I +U -U"),
    "late": ({**SUM, **LOOKUP, "sequence.field": "g"}, "+I"),
    "removed": ({**SUM, **LOOKUP, f"aggregation.{REMOVED}": "true"}, "+I +I -D"),
    "ignored": ({**SUM, **LOOKUP, "ignore-delete": "true"}, "+I -D"),
    "added": (
        {
            **PARTS,
            **FORCED,
            "fields.g.sequence-group": "v",
            "fields.v.aggregate-function": "sum",
        },
        "+I",
    ),
    "grouped": ({**PARTS, **LOOKUP, "fields.g.sequence-group": "v,w"}, "+I"),
    "cut": ({**PARTS, **LOOKUP, f"partial-update.{REMOVED}": "true"}, "+I +I -D"),
    "waiting": ({**SUM, **LOOKUP, "lookup-wait": "false", "lookup-compact": "gentle"}, "+I -D"),
    "plain": ({**SUM, "changelog-producer": "input"}, "+I -D"),
    "newest": ({**LOOKUP, "merge-engine": "deduplicate", "sequence.field": "g"}, "+I -D"),
    "vectors": ({**SUM, "deletion-vectors.enabled": "true"}, "+I -D"),
}
SAMPLE = ("sums", "forced", "removed", "cut")


@pytest.fixture
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    made = Warehouse(str(tmp_path_factory.mktemp("levels")))
    made.create_database("db")
    return made


@pytest.fixture
def java(warehouse: Warehouse) -> Iterator[Sidecar]:
    with java_rows.utc_sidecar(warehouse.options) as sidecar:
        yield sidecar


def play(warehouse: Warehouse, java: Sidecar, kind: str, steps: int) -> int:
    game = Game(warehouse, java, kind, *KINDS[kind], SEED)
    game.play(steps)
    return game.layered


def test_both_cores_agree_on_what_levels_hold(warehouse: Warehouse, java: Sidecar) -> None:
    layered = {kind: play(warehouse, java, kind, STEPS) for kind in SAMPLE}
    # Where a `-D` removes the record, the sidecar compacts fully only (decision 121).
    assert all(bool(count) == (kind in ("sums", "forced")) for kind, count in layered.items())


def test_a_change_of_the_rule_needs_files_of_one_level(warehouse: Warehouse, java: Sidecar) -> None:
    game = Game(warehouse, java, "sums", *KINDS["sums"], SEED)
    while not game.layered:
        game.step()
    to_input = SetTableOption("changelog-producer", "input")
    with pytest.raises(OptionError, match="compact it in full: CALL sys.compact"):
        warehouse.alter_table(game.identifier, to_input)
    java.compact(game.identifier, full=True)
    warehouse.alter_table(game.identifier, to_input)
    game.check()


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_both_cores_agree_for_long(warehouse: Warehouse, java: Sidecar, kind: str) -> None:
    play(warehouse, java, kind, SOAK_STEPS)
