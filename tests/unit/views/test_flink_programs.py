"""The queries of Flink's own test programs as views have the rows that Flink expects."""

from __future__ import annotations

import datetime
import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.local_pipeline import LocalPipeline
from tests.unit.views.flink_programs import Program, Table, programs, remaining
from tests.unit.views.test_closed_windows import NOW, ClosedView
from tests.unit.views.view_session import ViewSession

from streamhouse.errors import StreamhouseError

_LEAST_EQUAL = 120
_MOST_REFUSED = 4
"""But for those with `_LATER` in their reason."""
_LATER = (
    "windows over processing time", "_PROCTIME", "FOR SYSTEM_TIME AS OF",
    "CURRENT_WATERMARK", "LATERAL TABLE", "inlineFunction", "the order of processing time",
)  # fmt: skip
_TIME = (
    "state-ttl", "proc-time", "proctime", "temporal-sort", "out-of-order", "upsert-filter",
    "deduplicate", "group-window-", "tvf-agg", "window-aggregate", "window-join", "window-rank",
)  # fmt: skip
"""Parts of the names of programs in which Flink drops or keeps rows by the time or their order.

Windows appear in Flink when the watermark passes their end, and late rows are dropped.
"""
_CLOSED = (
    "group-window-",
    "tvf-agg",
    "window-aggregate-",
    "window-join",
    "window-rank",
    "window-dedup",
)
"""Parts of the names of programs whose results Flink writes when the watermark passes a window."""
_LEAST_CLOSED = 35
_STREAMED = ("temporal-join-table", "calc-current-watermark", "watermark-assigner-pushdown-comp")
"""Parts of the names of programs with versions of tables, or CURRENT_WATERMARK."""
_UNCHECKED = ("sink-primary-key", "constraint-enforcer-drop")
"""Programs that declare a key or NOT NULL fields that their rows do not have."""
_ANY_ROWS = (
    "LimitTestPrograms: limit", "MatchRecognizeTestPrograms: match-order-by-event-time",
)  # fmt: skip
"""Programs with LIMIT without ORDER BY, or in whose order several rows are equal: other results are
right, too."""


@pytest.mark.soak
@pytest.mark.skipif(not shutil.which("mvn") or not shutil.which("javac"), reason="needs mvn, javac")
def test_flinks_test_programs(tmp_path: Path) -> None:
    outcomes: dict[str, list[str]] = {}
    for program in programs(tmp_path / "flink"):
        outcome = program.unsupported or _outcome(program, tmp_path / "warehouse")
        outcomes.setdefault(outcome, []).append(program.name)
    for outcome, names in sorted(outcomes.items(), key=lambda item: -len(item[1])):
        print(f"{len(names)} {outcome}: {', '.join(names)}")
    wrong = {outcome: names for outcome, names in outcomes.items() if outcome.startswith("wrong")}
    assert not wrong
    assert len(outcomes["equal"]) >= _LEAST_EQUAL
    refused = {outcome: names for outcome, names in outcomes.items() if "refused" in outcome}
    others = [n for reason, names in refused.items() for n in names if not _is_later(reason)]
    assert len(others) <= _MOST_REFUSED


@pytest.mark.soak
@pytest.mark.skipif(not shutil.which("mvn") or not shutil.which("javac"), reason="needs mvn, javac")
def test_flinks_windows_are_closed_by_watermarks(tmp_path: Path) -> None:
    """Also with what Flink drops as late: a batch ends before each row that is behind another."""
    outcomes: dict[str, list[str]] = {}
    chosen = {program.outputs[0][1]: program for program in programs(tmp_path / "flink")
              if program.outputs and any(part in program.name for part in _CLOSED)}  # fmt: skip
    for program in chosen.values():
        outcome = program.unsupported or _closed_outcome(program, tmp_path / "closed")
        outcomes.setdefault(outcome, []).append(program.name)
    for outcome, names in outcomes.items():
        print(f"{len(names)} {outcome}: {', '.join(names)}")
    assert not [outcome for outcome in outcomes if outcome.startswith("wrong")]
    assert len(outcomes["equal"]) >= _LEAST_CLOSED


@pytest.mark.soak
@pytest.mark.skipif(not shutil.which("mvn") or not shutil.which("javac"), reason="needs mvn, javac")
def test_flinks_streams_of_versions_and_watermarks(tmp_path: Path) -> None:
    """Programs that only streams compute; each row is a batch, so that its watermark is known."""
    outcomes = {
        program.name: _streamed_outcome(program, tmp_path / program.name)
        for program in programs(tmp_path / "flink")
        if any(part in program.name for part in _STREAMED) and not program.unsupported
    }
    assert len(outcomes) == 5
    assert set(outcomes.values()) == {"equal"}, outcomes


def _streamed_outcome(program: Program, folder: Path) -> str:
    shop, ((sink, query, changes),) = LocalPipeline(folder), program.outputs
    tables = "".join(f"{table.versioned_ddl};" for table in program.tables)
    target = f"{sink.versioned_ddl}; INSERT INTO `{sink.name}`"
    if "watermark" not in program.name:
        # Late versions correct the rows.
        target = f"CREATE MATERIALIZED VIEW `{sink.name}` AS"
    script = f"{tables} {target} {query};"
    shop.do(tables)
    for stage in range(2):
        for table in reversed(program.tables):
            for change in table.stages[stage]:
                shop.do(f"{tables} {table.add([change['row']])}")
                shop.run(script)
        rows = shop.selected(f"SELECT * FROM `{sink.name}`")
        found = Counter(", ".join(map(_java, row)) for row in rows)
        expected = Counter(sink.expected(changes[stage]))
        # After a restart Flink has no watermark until the next row.
        if found != expected and not (stage and "watermark" in program.name):
            return f"wrong: {query}: {found - expected}, not {expected - found}"
    return "equal"


def _closed_outcome(program: Program, folder: Path) -> str:
    """`equal`, or what is wrong with the windows of a program that watermarks close."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    session, now = ViewSession(folder / "lake"), NOW
    (sink, query, changes), *_ = program.outputs
    tables = [table for table in program.tables if table.name in query]
    if any(change["kind"] != "+I" for table in tables for part in table.stages for change in part):
        return "changes"
    try:
        for statement in [*(table.growing_ddl for table in program.tables), *program.views]:
            session.run(statement)
        view = ClosedView(session, _converted(session, "plain", query, sink.stored))
        for stage in range(2):
            rows = [[change["row"] for change in table.stages[stage]] for table in tables]
            parts_of = [_in_order(r, t.time_place) for r, t in zip(rows, tables, strict=True)]
            far = [[_far(table)] for table in tables] if stage else []
            batches = [*zip_longest(*parts_of, fillvalue=[]), *([far] if stage else [])]
            for parts in batches:
                for table, part in zip(tables, parts, strict=True):
                    if part:
                        session.execute(table.add(part))
                now += 1_000
                view.run(now, "")
            written = session.exact_rows("SELECT * FROM t__view")
            found = Counter(", ".join(map(_java, row)) for row in written)
            expected = Counter(sink.expected(changes[stage]))
            # A source without a second part ends after the first one, and so closes all windows.
            if found != expected and (stage or any(table.stages[1] for table in tables)):
                return f"wrong: {query}: {found - expected}, not {expected - found}"
    except StreamhouseError as error:
        return f"refused: {str(error).splitlines()[0].split(': ', 1)[-1]}"
    return "equal"


def _far(table: Table) -> list[Any]:
    """A row after all others."""
    row, place = list(table.stages[0][0]["row"]), table.time_place
    row[place] = "2030" + row[place][4:]
    return row


def _in_order(rows: list[Any], place: int) -> Iterator[list[Any]]:
    """The rows in parts, of which none has a row whose time is behind one of another part."""
    part: list[Any] = []
    newest = ""
    for row in rows:
        if row[place] < newest:
            yield part
            part = []
        part.append(row)
        newest = max(newest, row[place])
    yield part


def test_what_remains_of_changes() -> None:
    changes = [("+I", "a"), ("+I", "a"), ("-U", "a"), ("+U", "b"), ("-D", "a")]
    assert remaining(changes, []) == ["b"]
    assert remaining([("+I", [1, 2]), ("+U", [1, 3]), ("+I", [2, 2])], [0]) == [[1, 3], [2, 2]]


def _is_later(reason: str) -> bool:
    return any(part in reason for part in _LATER)


def _outcome(program: Program, folder: Path) -> str:
    """`equal`, or what is wrong with the views of a program."""
    shutil.rmtree(folder, ignore_errors=True)
    session = ViewSession(folder)
    try:
        for statement in [*(table.ddl for table in program.tables), *program.views]:
            session.run(statement)
        views = []
        for number, (sink, query, changes) in enumerate(program.outputs):
            converted = _converted(session, f"plain{number}", query, sink.stored)
            if not converted:
                return "a part of the sink's columns"
            session.view(f"view{number}", converted)
            views.append((f"view{number}", converted, sink, changes))
        for stage in range(2):
            for table in program.tables:
                if statement := table.insert(stage):
                    session.execute(statement)
            for name, query, sink, changes in views:
                session.refresh(name)
                if program.name not in _ANY_ROWS:
                    session.check(name, query)
                rows = session.exact_rows(f"SELECT * FROM {name}")
                found = Counter(", ".join(map(_java, row)) for row in rows)
                expected = Counter(sink.expected(changes[stage]))
                if found != expected and not _is_other(program.name):
                    return f"wrong: {query}: {found - expected}, not {expected - found}"
    except StreamhouseError as error:
        return f"refused: {str(error).splitlines()[0].split(': ', 1)[-1]}"
    return "other rows by time or key" if _is_other(program.name) else "equal"


def _is_other(name: str) -> bool:
    return any(part in name for part in (*_TIME, *_UNCHECKED, *_ANY_ROWS))


def _converted(session: ViewSession, name: str, query: str, columns: list[tuple[str, str]]) -> str:
    """The query with the columns of its sink; empty if it gives it only some of them."""
    session.view(name, query)
    table = session.session.table((name,))
    given = [column.name for column in table.columns if column.name != "_view_key"]
    if len(given) != len(columns):
        return ""
    pairs = zip(given, columns, strict=True)
    items = (f"CAST(`{one}` AS {kind}) AS `{other}`" for one, (other, kind) in pairs)
    return f"SELECT {', '.join(items)} FROM ({query}) AS q_"


def _java(value: Any) -> str:
    """A value as Java writes it."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case datetime.datetime() | datetime.time():
            return _java_time(value)
        case dict():
            return f"+I[{', '.join(map(_java, value.values()))}]"
        case list() if value and isinstance(value[0], tuple):
            return f"{{{', '.join(f'{_java(key)}={_java(one)}' for key, one in value)}}}"
        case list():
            return f"[{', '.join(map(_java, value))}]"
        case bytes():
            return f"[{', '.join(str(byte - 256 if byte > 127 else byte) for byte in value)}]"
    return str(value)


def _java_time(value: datetime.datetime | datetime.time) -> str:
    digits = "microseconds" if value.microsecond % 1000 else "milliseconds"
    whole = "seconds" if value.second or value.tzinfo is not None else "minutes"
    digits = digits if value.microsecond else whole
    return value.isoformat(timespec=digits).replace("+00:00", "Z")
