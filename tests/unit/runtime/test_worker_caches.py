"""A worker caches the state of a query between batches, until the query changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.unit.runtime.test_batch_planner import QUERY, Tables

from streamhouse.connectors.specs import SourceSpec
from streamhouse.runtime.streaming.tasks.worker_resources import resources_of


def test_the_next_run_in_the_same_worker_has_its_own_options(tmp_path: Path) -> None:
    """A program may run a script twice in one session, with another rate under the same SELECT."""
    spec = Tables(tmp_path).spec
    rates = [{"rows-per-second": rate, "number-of-rows": "9"} for rate in ("1", "2")]
    slow, fast = (
        replace(spec, source=SourceSpec("datagen", rate, QUERY.rows.columns)) for rate in rates
    )
    first = resources_of(slow)
    assert resources_of(slow) is first and first.operator() is first.operator()
    assert first.source is first.source is not resources_of(fast).source


def test_another_version_of_the_target_has_another_kernel(tmp_path: Path) -> None:
    spec = Tables(tmp_path).spec
    later = replace(spec, target=replace(spec.target, schema_id=0))
    assert resources_of(spec).operator() is not resources_of(later).operator()
