"""The names of the checkpoints of INSERTs into one table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamhouse.errors import UnsupportedSqlError
from streamhouse.runtime.shared_target import checkpoint_names
from streamhouse.runtime.state.checkpoint import Checkpoint


def ran(folder: Path, name: str, source: str) -> None:
    """Let a query over a table have run with a checkpoint."""
    checkpoint = Checkpoint(folder, "p", name)
    checkpoint.path.mkdir(parents=True)
    definition = {"query": {"scan": {"table": {"name": ["c", "d", source]}}}}
    checkpoint.remember({"definition": json.dumps(definition)})


def names(folder: Path, sources: str, before: Sequence[tuple[str, str]] = ()) -> list[str]:
    """The names for an INSERT from tables; `before`: checkpoints and tables of those before."""
    queries: Any = [SimpleNamespace(source=SimpleNamespace(name=("c", "d", s))) for s in sources]
    others: Any = [
        SimpleNamespace(
            description=SimpleNamespace(
                checkpoint_path=Checkpoint(folder, "p", name).path,
                source=object(),
                reads=("c", "d", source),
            )
        )
        for name, source in before
    ]
    statement: Any = SimpleNamespace(position=SimpleNamespace(line=1, column=1))
    return checkpoint_names(statement, queries, Checkpoint(folder, "p", "d.t"), others)


def test_the_first_query_has_the_name_of_the_target(tmp_path: Path) -> None:
    assert names(tmp_path, "a") == ["d.t"]
    assert names(tmp_path, "aba") == ["d.t", "d.t+d.b", "d.t+d.a"]
    assert names(tmp_path, "abb") == ["d.t", "d.t+d.b", "d.t+d.b+2"]


def test_a_query_keeps_its_name_if_branches_come_or_go(tmp_path: Path) -> None:
    ran(tmp_path, "d.t", "a")
    ran(tmp_path, "d.t+d.b", "b")
    assert names(tmp_path, "ba") == ["d.t+d.b", "d.t"]
    assert names(tmp_path, "b") == ["d.t+d.b"]
    assert names(tmp_path, "c") == ["d.t"]


def test_a_later_insert_also_has_the_table_that_it_reads(tmp_path: Path) -> None:
    assert names(tmp_path, "b", [("d.t", "a")]) == ["d.t+d.b"]
    assert names(tmp_path, "bc", [("d.t", "a")]) == ["d.t+d.b", "d.t+d.c"]
    assert names(tmp_path, "a", [("d.t", "a")]) == ["d.t"]


def test_a_query_that_had_the_targets_name_must_come_first(tmp_path: Path) -> None:
    ran(tmp_path, "d.t", "b")
    with pytest.raises(UnsupportedSqlError, match="only the query over b has written d.t; put"):
        names(tmp_path, "b", [("d.t", "a")])
    ran(tmp_path, "d.t+d.b", "b")
    assert names(tmp_path, "b", [("d.t", "a")]) == ["d.t+d.b"]
