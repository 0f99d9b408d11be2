"""Shared readers: one per connector, for the queries whose source it can share."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamhouse.runtime import pipeline
from streamhouse.runtime.pipeline import Pipeline
from streamhouse.runtime.spark.settings import SparkOptions


class Reader:
    """A shared reader that records the sources of each start."""

    def __init__(self) -> None:
        self.started: list[list[str]] = []
        self.open = True

    def start(self, sources: list[Any]) -> None:
        self.started.append([source.name for source in sources])

    def close(self) -> None:
        self.open = False


def start(pipeline: Pipeline, queries: list[Any]) -> None:
    pipeline._new = queries
    pipeline._start_readers()


def test_queries_are_started_by_connector(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Reader] = {}

    def connector(name: str) -> Any:
        def shared_reader() -> Reader | None:
            return made.setdefault(name, Reader()) if name != "datagen" else None

        return SimpleNamespace(shared_reader=shared_reader)

    def query(name: str, source: str | None) -> Any:
        spec = None if source is None else SimpleNamespace(connector=source)
        return SimpleNamespace(name=name, source_spec=spec)

    monkeypatch.setattr(pipeline, "connector", connector)
    running = Pipeline(SparkOptions(), lambda: False)
    start(running, [
        query("a", "mysql-cdc"), query("view", None), query("b", "other"),
        query("c", "mysql-cdc"), query("d", "datagen"),
    ])  # fmt: skip
    start(running, [query("e", "mysql-cdc")])
    assert made["mysql-cdc"].started == [["a", "c"], ["e"]]
    assert made["other"].started == [["b"]]
    assert made.keys() == {"mysql-cdc", "other"}
    running._new = []
    running.close()
    assert not any(reader.open for reader in made.values())
