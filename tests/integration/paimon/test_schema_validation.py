"""Definitions of tables: accepted if and only if the Java core accepts them, but for a list."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.schema_cases import Case, generated

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.schema import types
from streamhouse.paimon.schema.options.table_options import value_type
from streamhouse.paimon.schema.validation.schema_validation import check_schema
from streamhouse.runtime.execute import execute

STRICTER = {
    "no column can have the name in SQL": r"differ only in case|'ROWKIND'",
    "the option would have no effect": (
        r"has no effect|only has an effect|'bucket-key' names .* is|'descending' needs 'sequence"
    ),
    "the Rust core writes no such partitions": "of which no partition can be written",
    "the Rust core writes no such files": r"is not one of (none|parquet|avro|zstd)",
    "the Rust core refuses it when it writes": "part of the primary key; leave it out",
    "the Java core fails when it reads or writes": (
        r"is not one of|is not a (column|number|whole|size)|neither 'true' nor|needs one of|"
        "have no order|whose values have an order|needs 'record-level.time-field'"
    ),
    "values would be merged in no certain way": "is in two sequence groups",
    "a key could have a row in each partition": "a row in each partition|keeps it there as well",
    "a record would be removed in part": r"\.ignore-retract' exclude each other",
    "late rows would be merged by the layout of files": "before and after a compaction",
    "a partition key outside the primary key would be ambiguous": "is not part of the primary key",
    "CHAR keys do not match in ORC files": "which ORC files pad",
    "rows within arrays are lost in Avro files": "cannot be read from Avro",
    "the cores write no table that is read as of a time": "cannot be stored with a table",
    "rows would be invisible": "postponed",
}
"""Why we refuse what the Java core accepts, and how our error says it."""


def _refused(case: Case) -> str | None:
    try:
        check_schema(case.declared)
    except StreamhouseError as error:
        return str(error)
    return None


def _stored(case: Case) -> str:
    """The definition as the schema file of a table."""
    fields = [
        {"id": number, "name": name, "type": types.parse(text, name not in case.primary_key)}
        for number, (name, text) in enumerate(case.columns)
    ]
    for field in fields:
        if isinstance(field["type"], dict):
            field["type"] = _numbered(field["type"], len(fields) + 10 * int(str(field["id"])))
    return json.dumps({
        "version": 3, "id": 0, "fields": fields, "highestFieldId": 1000,
        "partitionKeys": case.partition_keys, "primaryKeys": case.primary_key,
        "options": case.options, "comment": None, "timeMillis": 0,
    })  # fmt: skip


def _numbered(kind: dict[str, Any], base: int) -> dict[str, Any]:
    """A type whose ROW fields have ids of their own."""
    text = json.dumps(kind)
    count = iter(range(base, base + 10))
    kind = json.loads(re.sub(r'"id": \d+', lambda _: f'"id": {next(count)}', text))
    return kind


def _java_refuses(jvm: Any, case: Case) -> str | None:
    core = jvm.org.apache.paimon
    try:
        schema = core.schema.TableSchema.fromJson(_stored(case))
        schema.toSchema()
        core.schema.SchemaValidation.validateTableSchema(schema)
        if case.primary_key:
            # What the Java core checks only when it reads or writes: types of merge functions.
            core.table.PrimaryKeyTableUtils.createMergeFunctionFactory(schema).create()
    except Exception as error:  # noqa: BLE001  # py4j's, of any class
        return str(error)
    return None


@pytest.mark.parametrize(
    "seeds", [range(400), pytest.param(range(400, 8000), marks=pytest.mark.soak)], ids=len
)
def test_we_accept_what_the_java_core_accepts(tmp_path: Path, seeds: range) -> None:
    execute(str(tmp_path), "CREATE DATABASE d; CREATE TABLE d.t (k INT)")
    both = stricter = 0
    problems = []
    with Sidecar({"warehouse": str(tmp_path)}) as java:
        cases = [generated(seed, (0.02, 0.15, 0.3)[seed % 3]) for seed in seeds]
        theirs = java.call("d.t", lambda jvm, _: [_java_refuses(jvm, case) for case in cases])
    for case, java_error in zip(cases, theirs, strict=True):
        ours = _refused(case)
        if (ours is None) == (java_error is None):
            both += ours is None
        elif ours is None:
            problems.append((case, f"only Java refuses: {java_error}"[:600]))
        elif not any(re.search(pattern, ours) for pattern in STRICTER.values()):
            problems.append((case, f"only we refuse: {ours}"))
        else:
            stricter += 1
    problems.sort(key=lambda problem: "only we" in problem[1])
    assert not problems, "\n\n".join(f"{case}\n{text}" for case, text in problems[:8])
    assert both > len(seeds) / 5 and stricter > 0


def test_values_have_the_types_of_the_java_core(tmp_path: Path) -> None:
    execute(str(tmp_path), "CREATE DATABASE d; CREATE TABLE d.t (k INT)")
    with Sidecar({"warehouse": str(tmp_path)}) as java:
        theirs = java.call("d.t", _value_types)
    names = {"Integer": "INT", "Long": "BIGINT", "Double": "DOUBLE", "Float": "DOUBLE"}
    names |= {"Boolean": "BOOLEAN", "Duration": "DURATION", "MemorySize": "MEMORY SIZE"}
    for key, kind in theirs.items():
        ours = value_type(key)
        if key == "type":
            assert ours == "table" and ours in kind.split(" | ")
        elif ours != "STRING" and "file" not in key and "stats-mode" not in key:
            wanted = "STRING" if key.startswith("manifest.") else names.get(kind, kind)
            assert wanted in (ours, "STRING"), key
    assert len(theirs) > 200


def _value_types(jvm: Any, _: Any) -> dict[str, str]:
    """The class of the values of each option, or the values of an enumerated one."""
    types_by_key = {}
    for field in jvm.java.lang.Class.forName("org.apache.paimon.CoreOptions").getFields():
        if field.getType().getSimpleName() != "ConfigOption":
            continue
        option = field.get(None)
        found = jvm.java.lang.Class.forName("org.apache.paimon.options.ConfigOption")
        getter = found.getDeclaredField("clazz")
        getter.setAccessible(True)
        kind = getter.get(option)
        words = [str(word.toString()).lower() for word in kind.getEnumConstants() or ()]
        types_by_key[option.key()] = " | ".join(words) or kind.getSimpleName()
    return types_by_key
