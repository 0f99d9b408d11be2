"""Flink's own test programs: their tables, rows and queries, and the rows that Flink expects.

Maven brings the jars; `scripts/flink_test_programs` has the program that prints what is in them.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

_SCRIPTS = Path(__file__).parents[3] / "scripts" / "flink_test_programs"
_PROGRAMS = ("flink-table-planner_2.12", "flink-table-api-java")
_INSERT = re.compile(
    r"\s*insert\s+into\s+(`?[\w.]+`?)\s*(\((?!\s*select)[^)]*\))?\s*(.*)", re.I | re.S
)
_KEY = re.compile(r"(constraint\s.*)?primary\s+key\s*\(([^)]*)\).*", re.I | re.S)
_COLUMN = re.compile(r"\s*(`[^`]+`|\w+)\s+(.*)", re.S)
_NOT_NULL = re.compile(r"\bnot\s+null\b", re.I)
_SUFFIX = re.compile(r"\s(primary\s+key|metadata|not\s+enforced|virtual).*", re.I | re.S)
_OWN_CATALOG = re.compile(r"`default_catalog`\.`default_database`\.")


@dataclass(frozen=True)
class Table:
    """A table; a computed column has its expression, `AS …`, as type.

    `stages` are the changes of a source before and after Flink's restart. `watermark` is a clause.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    stages: tuple[tuple[Any, ...], ...] = ()
    watermark: str = ""

    @property
    def stored(self) -> list[tuple[str, str]]:
        """The columns that have values."""
        return [column for column in self.columns if not column[1].upper().startswith("AS ")]

    @property
    def time_place(self) -> int:
        """The place of the time among the stored columns; the first one has the text of others."""
        names = [name for name, _ in self.stored]
        found = re.match(r"watermark\s+for\s+`?(\w+)", self.watermark, re.I)
        return names.index(found[1]) if found and found[1] in names else 0

    @property
    def ddl(self) -> str:
        """Its statement, with a key if its rows are unique by that, which Flink does not check."""
        columns = [f"`{name}` {kind}" for name, kind in self.columns]
        if not self.key or any(self._repeats(stage) for stage in range(len(self.stages))):
            return f"CREATE TABLE `{self.name}` ({', '.join(columns)})"
        key = ", ".join(f"`{name}`" for name in self.key)
        columns.append(f"PRIMARY KEY ({key}) NOT ENFORCED")
        return f"CREATE TABLE `{self.name}` ({', '.join(columns)}) WITH ('bucket' = '1')"

    @property
    def growing_ddl(self) -> str:
        """Its statement as a table that only grows, with its watermark."""
        plain = replace(self, key=()).ddl
        return f"{plain[:-1]}, {self.watermark})" if self.watermark else plain

    @property
    def versioned_ddl(self) -> str:
        """Its statement with its watermark, and with its key, if it has one: that of versions."""
        key = f", PRIMARY KEY ({', '.join(self.key)}) NOT ENFORCED)" if self.key else ")"
        options = " WITH ('bucket' = '1')" if self.key else ""
        columns = self.growing_ddl.removeprefix("CREATE TABLE").rstrip(")")
        columns += ")" * (columns.count("(") - columns.count(")") - 1)
        return f"CREATE TABLE IF NOT EXISTS{columns}{key}{options}"

    def insert(self, stage: int) -> str:
        """The statement that gives it the rows after a stage; empty without rows."""
        rows = self._rows(stage)
        return f"INSERT OVERWRITE `{self.name}` VALUES {self._values(rows)}" if rows else ""

    def add(self, rows: Sequence[Sequence[Any]]) -> str:
        """The statement that adds some rows."""
        return f"INSERT INTO `{self.name}` VALUES {self._values(rows)}"

    def _values(self, rows: Sequence[Sequence[Any]]) -> str:
        kinds = [kind for _, kind in self.stored]
        return ", ".join(f"({', '.join(map(_literal, row, kinds))})" for row in rows)

    def _rows(self, stage: int) -> list[list[Any]]:
        changes = [change for rows in self.stages[: stage + 1] for change in rows]
        retracts = any(change["kind"] == "-U" for change in changes)
        upserts = any(change["kind"] == "+U" for change in changes) and not retracts
        pairs = [(change["kind"], change["row"]) for change in changes]
        return remaining(pairs, self._places if upserts else [])

    def _repeats(self, stage: int) -> bool:
        keys = [repr([row[place] for place in self._places]) for row in self._rows(stage)]
        return len(set(keys)) < len(keys)

    @property
    def _places(self) -> list[int]:
        names = [name for name, _ in self.stored]
        return [names.index(name) for name in self.key]

    def expected(self, changes: Sequence[str]) -> list[str]:
        """What remains of the changes that Flink writes to this sink, such as `+I[1, a]`."""
        if not self.key:
            return remaining([(text[:2], text[3:-1]) for text in changes], [])
        pairs = [(text[:2], _parts(text[3:-1])) for text in changes]
        return [", ".join(row) for row in remaining(pairs, self._places)]


@dataclass
class Program:
    """A program; `outputs` are its queries, each with the sink, and its changes by stage.

    `unsupported`: why it is no program of SQL alone; else empty.
    """

    name: str
    tables: list[Table] = field(default_factory=list)
    views: list[str] = field(default_factory=list)
    outputs: list[tuple[Table, str, list[list[str]]]] = field(default_factory=list)
    unsupported: str = ""


def remaining(changes: Sequence[tuple[str, Any]], key: Sequence[int]) -> list[Any]:
    """What remains of a changelog, in which each row replaces that with the same `key`, if any."""
    rows: list[Any] = []
    for kind, row in changes:
        if key:
            same = [row[place] for place in key]
            rows = [other for other in rows if [other[place] for place in key] != same]
        elif kind in ("-U", "-D") and row in rows:
            rows.remove(row)
        if kind in ("+I", "+U"):
            rows.append(row)
    return rows


def programs(folder: Path) -> Iterator[Program]:
    """The programs of Flink's jars, which are fetched into `folder`."""
    jars, pom = folder / "jars", str(_SCRIPTS / "pom.xml")
    copy = ["dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
    subprocess.run(["mvn", "-q", "-f", pom, *copy], check=True, timeout=900)
    classpath = os.pathsep.join(map(str, [folder, *sorted(jars.glob("*.jar"))]))
    source = str(_SCRIPTS / "FlinkTestPrograms.java")
    subprocess.run(["javac", "-cp", classpath, "-d", str(folder), source], check=True, timeout=300)
    found = [str(jar) for name in _PROGRAMS for jar in jars.glob(f"{name}-*-tests.jar")]
    printed = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath, "FlinkTestPrograms", *found],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=300,
    )  # fmt: skip
    yield from map(program, map(json.loads, printed.stdout.splitlines()))


def program(line: dict[str, Any]) -> Program:
    """The program of a line that `FlinkTestPrograms` printed."""
    made = Program(f"{line['class']}: {line['id']}")
    sinks: dict[str, tuple[Table, list[list[str]]]] = {}
    statements: list[str] = []
    for step in line["steps"]:
        match step["kind"].split("_")[0]:
            case "SOURCE":
                made.tables.append(_table(step, tuple(map(tuple, step["rows"]))))
            case "SINK":
                table = _table(step)
                sinks[table.name] = table, [step["before"], step["expected"]]
            case "SQL":
                statements.append(step["sql"])
            case "STATEMENT":
                statements += step["statements"]
            case "CONFIG" | "TABLE" | "FAILING":
                pass
            case kind:
                made.unsupported = f"a {kind.lower()} in Java"
    for sql in statements:
        _add(made, _OWN_CATALOG.sub("", sql).rstrip().rstrip(";"), sinks)
    if not made.outputs:
        made.unsupported = made.unsupported or "no query in SQL"
    return made


def _add(made: Program, sql: str, sinks: dict[str, tuple[Table, list[list[str]]]]) -> None:
    insert = _INSERT.fullmatch(sql)
    name = insert[1].strip("`").split(".")[-1] if insert else ""
    if insert and name in sinks:
        table, changes = sinks[name]
        made.outputs.append((table, insert[3], changes))
    elif re.match(r"\s*create\s", sql, re.I):
        made.views.append(sql)
    elif re.match(r"\s*(select|with|values)\s", sql, re.I) and len(sinks) == 1:
        ((table, changes),) = sinks.values()
        made.outputs.append((table, sql, changes))


def _table(step: dict[str, Any], stages: tuple[tuple[Any, ...], ...] = ()) -> Table:
    columns, key, watermark = [], [], ""
    for part in _parts(", ".join(step["schema"])):
        if found := _KEY.fullmatch(part):
            key = [name.strip(" `") for name in found[2].split(",")]
        elif found := _COLUMN.fullmatch(part):
            name, kind = found[1].strip("`"), found[2].strip()
            if name.upper() == "WATERMARK" and kind.upper().startswith("FOR "):
                watermark = part
                continue
            if re.search(r"\sprimary\s+key", kind, re.I):
                key = [name]
            # Only keys need a NOT NULL, which these have anyway.
            columns.append((name, _NOT_NULL.sub("", _SUFFIX.sub("", kind)).strip()))
    return Table(step["name"], tuple(columns), tuple(key), stages, watermark)


def _parts(text: str) -> list[str]:
    """The parts of a list, which may have lists in brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "<([{") - (char in ">)]}")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def _literal(value: Any, kind: str) -> str:
    """A value of a program in SQL."""
    inner = _parts(kind[kind.find("<") + 1 : kind.rfind(">")]) if "<" in kind else []
    if value is None:
        return f"CAST(NULL AS {kind})"
    if isinstance(value, list):
        return f"CAST(ARRAY[{', '.join(_literal(item, inner[0]) for item in value)}] AS {kind})"
    if isinstance(value, dict) and "row" in value:
        kinds = [found[2] for part in inner if (found := _COLUMN.fullmatch(part))]
        return f"CAST(ROW({', '.join(map(_literal, value['row'], kinds))}) AS {kind})"
    if isinstance(value, dict) and "bytes" in value:
        return f"CAST(X'{base64.b64decode(value['bytes']).hex()}' AS {kind})"
    if isinstance(value, dict):
        pairs = [part for pair in value["map"] for part in map(_literal, pair, inner)]
        return f"CAST(MAP[{', '.join(pairs)}] AS {kind})"
    if isinstance(value, bool):
        return str(value).upper()
    text = value.replace("'", "''")
    if "TIMESTAMP" in kind.upper():
        text = text.replace("T", " ").rstrip("Z")
        text += ":00" * (text.count(":") == 1)
    return f"CAST('{text}' AS {kind})"
