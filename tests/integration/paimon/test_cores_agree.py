"""Both cores read the same rows, whatever the merge engine, the changelog and the files."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.integration.paimon.both_cores")

from tests.integration.paimon.both_cores import Game  # noqa: E402

from streamhouse.paimon.catalog.warehouse import Warehouse  # noqa: E402
from streamhouse.paimon.java.sidecar import Sidecar  # noqa: E402

SEED = int(os.environ.get("STREAMHOUSE_CORES_SEED", "1"))
STEPS, SOAK_STEPS = 4, 10
REMOVED = "remove-record-on-delete"
ENGINES: dict[str, tuple[dict[str, str], str]] = {
    "newest": ({}, "+I +U -U -D"),
    "late": ({"sequence.field": "g"}, "+I +U -D"),
    "early": ({"sequence.field": "g,w", "sequence.field.sort-order": "descending"}, "+I -D"),
    "undeleted": ({"ignore-delete": "true"}, "+I -D"),
    "sums": (
        {
            "merge-engine": "aggregation",
            "fields.v.aggregate-function": "sum",
            "fields.w.aggregate-function": "last_non_null_value",
            "fields.g.aggregate-function": "max",
            "fields.g.ignore-retract": "true",
        },
        "+I +U -U -D",
    ),
    "removed": (
        {
            "merge-engine": "aggregation",
            "fields.default-aggregate-function": "first_value",
            "fields.v.aggregate-function": "sum",
            f"aggregation.{REMOVED}": "true",
        },
        "+I +I -D",
    ),
    "parts": ({"merge-engine": "partial-update"}, "+I +U"),
    "grouped": (
        {
            "merge-engine": "partial-update",
            "fields.g.sequence-group": "v,w",
            "fields.v.aggregate-function": "sum",
        },
        "+I +U -D",
    ),
    "cut": ({"merge-engine": "partial-update", f"partial-update.{REMOVED}": "true"}, "+I +I -D"),
    "first": ({"merge-engine": "first-row"}, "+I"),
}
PRODUCERS = ("none", "input", "full-compaction", "lookup")
FORMATS = ("parquet", "orc", "avro")
MIXED = {"file.format": "parquet", "file.format.per.level": "0:avro,5:orc"}
Kind = tuple[str, dict[str, str], str]


def kinds() -> Iterator[Kind]:
    """Every combination that the Java core takes: a name, options, kinds of rows."""
    for (engine, (options, rows)), producer, vectors, format in itertools.product(
        ENGINES.items(), PRODUCERS, (False, True), (*FORMATS, "mixed")
    ):
        if vectors and (producer not in ("none", "lookup") or engine == "first"):
            continue
        if engine == "first" and producer not in ("none", "lookup"):
            continue
        made = {**options, "changelog-producer": producer}
        made |= MIXED if format == "mixed" else {"file.format": format}
        if vectors:
            made["deletion-vectors.enabled"] = "true"
        name = f"{engine}_{producer.split('-')[0]}_{format}{'_vectors' * vectors}"
        yield name, made, rows
    for format in FORMATS:
        yield f"append_{format}", {"bucket": "-1", "file.format": format}, "+I"


KINDS = list(kinds())
SAMPLE = (
    "newest_lookup_orc_vectors",
    "late_full_avro",
    "removed_none_mixed",
    "grouped_lookup_parquet",
    "first_lookup_orc",
    "append_avro",
)


@pytest.mark.parametrize("kind", [one for one in KINDS if one[0] in SAMPLE], ids=lambda one: one[0])
def test_some_tables(warehouse: Warehouse, utc_java: Sidecar, kind: Kind) -> None:
    name, options, rows = kind
    Game(warehouse, utc_java, f"short_{name}", options, rows, SEED).play(STEPS)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS, ids=lambda one: one[0])
def test_all_tables(warehouse: Warehouse, utc_java: Sidecar, kind: Kind) -> None:
    Game(warehouse, utc_java, *kind, SEED).play(SOAK_STEPS)
