"""Finds connectors by the names of their folders, and reads their capabilities."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.documents import ROOT, blocks

from streamhouse import connectors
from streamhouse.connectors import registry
from streamhouse.connectors.base import Connector
from streamhouse.connectors.specs import SinkSpec, SourceSpec
from streamhouse.errors import DataLossError, OptionError, UnsupportedSqlError
from streamhouse.source import Offset, Source
from streamhouse.sql.plan import Column, TableInfo
from streamhouse.sql.syntax import TextPosition

COLUMNS = (Column("id", "INT"),)
TRIAL = '''
"""A connector that somebody else has written: numbers from 0 on."""

import pyarrow as pa

from streamhouse.connectors.base import Connector, Option
from streamhouse.sql.plan import Capabilities


class Numbers(Connector):
    name = "trial-numbers"
    summary = "Numbers."
    options = (Option("upto", "INT", "give the number of rows", required=True),)
    without_effect = {"speed": "all rows come at once"}
    capabilities = Capabilities(changelog=False, lookup=False, sink=False, merges=False)

    def scan(self, table, options, columns):
        schema = pa.schema([("id", pa.int32())])
        rows = pa.record_batch([pa.array(range(int(options["upto"])), pa.int32())], schema=schema)
        return schema, lambda: iter([rows])


CONNECTOR = Numbers()
'''


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more folder among the connectors."""
    folder = tmp_path / "trial_numbers"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "connector.py").write_text(TRIAL)
    monkeypatch.setattr(connectors, "__path__", [*connectors.__path__, str(tmp_path)])
    for name in [name for name in sys.modules if "trial_numbers" in name]:
        del sys.modules[name]
    registry.names.cache_clear()


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """No test sees the connectors of another."""
    yield
    registry.names.cache_clear()
    registry.connector.cache_clear()


def table(connector: str, **options: str) -> TableInfo:
    keyed = {key.replace("_", "-"): value for key, value in options.items()}
    return registry.declared(
        TableInfo(("c", "d", "t"), COLUMNS, options=keyed, connector=connector)
    )


@pytest.mark.parametrize("name", registry.names())
def test_each_has_a_name_a_summary_and_options_with_docs(name: str) -> None:
    kind = registry.connector(name)

    assert kind.name == name
    assert kind.summary.endswith(".")
    assert all(option.doc for option in kind.options)
    keys = [option.key for option in kind.options]
    assert sorted(keys) == sorted({*keys} - {*kind.without_effect})
    assert (kind.guarantee != "none") <= kind.capabilities.sink


def test_the_error_of_an_unknown_connector_names_the_nearest() -> None:
    with pytest.raises(OptionError, match=r"t: unknown connector 'mysqlcdc'; did you mean 'mysql-"):
        registry.check_declaration(table("mysqlcdc"), "t")


@pytest.mark.usefixtures("trial")
def test_a_new_connector_takes_only_a_folder() -> None:
    info = table("trial-numbers", upto="3", speed="9")

    assert registry.check_declaration(info, "t") == [
        "t: option 'speed' has no effect here: all rows come at once"
    ]
    kind = registry.connector("trial-numbers")
    schema, rows = kind.scan(info, registry.table_options(info), ["id"])
    assert [batch.to_pydict() for batch in rows()] == [{"id": [0, 1, 2]}]
    assert schema.names == ["id"]
    assert not info.capabilities.sink
    with pytest.raises(OptionError, match=r"t: unknown option 'uptoo'; did you mean 'upto'\?"):
        registry.check_declaration(table("trial-numbers", uptoo="3"), "t")
    with pytest.raises(OptionError, match=r"t: option 'upto' is missing; give the number of rows"):
        registry.check_declaration(table("trial-numbers"), "t")
    with pytest.raises(OptionError, match="'trial-numbers' cannot be read as a stream"):
        SourceSpec("trial-numbers", {}, COLUMNS).open()
    with pytest.raises(OptionError, match="'trial-numbers' cannot be written"):
        SinkSpec("trial-numbers", {}, COLUMNS).open()


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (None, r"'trial-numbers' has a folder, but no module .*trial_numbers\.connector; add it"),
        ("", r"trial_numbers\.connector defines no CONNECTOR, .* write CONNECTOR = C\(\)"),
        (TRIAL.replace("= Numbers()", "= Numbers"), "not an instance of Connector; write"),
        (TRIAL.replace("    summary =", "    note ="), r"set Numbers\.summary in .*\.connector"),
        (TRIAL.replace("trial-numbers", "numbers"), "name is 'numbers' .* write 'trial-numbers'"),
    ],
)
@pytest.mark.usefixtures("trial")
def test_a_mistake_in_a_connectors_folder_is_named(
    tmp_path: Path, module: str | None, message: str
) -> None:
    path = tmp_path / "trial_numbers" / "connector.py"
    if module is None:
        path.unlink()
    else:
        path.write_text(module)

    with pytest.raises(OptionError, match=message):
        registry.connector("trial-numbers")


def test_the_streaming_source_in_contributing_reads_complete_lines_and_replays_them(
    tmp_path: Path,
) -> None:
    example = next(
        block
        for block in blocks(ROOT / "CONTRIBUTING.md", "python")
        if "class LinesSource" in block.text
    )
    names: dict[str, Any] = {}
    exec(compile(example.text, str(example), "exec"), names)
    file = tmp_path / "lines.txt"
    file.write_text("one\ntwo\nthr")
    kind: Connector = names["CONNECTOR"]
    spec = SourceSpec("lines", {"path": str(file)}, (Column("line", "STRING"),))

    def read(source: Source, start: Offset, end: Offset) -> list[str]:
        return [
            line
            for partition in source.partitions(start, end)
            for batch in source.read(pickle.loads(pickle.dumps(partition)))
            for line in batch.column("line").to_pylist()
        ]

    source = kind.source(spec, None)
    first = source.latest_offset(source.initial_offset(), 1)
    second = source.latest_offset(first)
    assert read(source, source.initial_offset(), first) == ["one"]
    assert read(source, first, second) == ["two"]
    assert source.latest_offset(second) == second

    with file.open("a") as appended:
        appended.write("ee\n")
    another = kind.source(spec, None)
    assert read(another, first, second) == ["two"]
    assert read(another, second, another.latest_offset(second)) == ["three"]

    file.write_text("")
    with pytest.raises(DataLossError, match=r"was truncated; run the script with --from-scratch"):
        another.latest_offset(second)


def test_an_insert_into_a_source_names_the_connectors_with_a_sink() -> None:
    source = registry.declared(TableInfo(("c", "d", "t"), COLUMNS, (), (), (), {}, "datagen"))
    with pytest.raises(UnsupportedSqlError) as raised:
        registry.check_sink(source, TextPosition(3, 5))
    assert str(raised.value) == (
        "line 3, column 5: INSERT into a datagen table, whose connector has no sink; the target "
        "must be a Paimon table, or a table of one of these connectors: blackhole, filesystem, "
        "jdbc, kafka, print, upsert-kafka"
    )
    for name in ("print", "paimon"):
        target = TableInfo(("c", "d", "t"), COLUMNS, (), (), (), {}, name)
        registry.check_sink(registry.declared(target), TextPosition(1, 1))
