"""Options that the SQL layer knows by itself: datagen tables, SET keys, lookup joins.

Each `check_*` raises `OptionError`, naming the nearest known key for one that is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from streamhouse.errors import OptionError
from streamhouse.options import boolean, check_known, choice, duration_ms, integer, nearest
from streamhouse.sql.options.flink_settings import SAME_AS, ineffective
from streamhouse.sql.plan import Column
from streamhouse.sql.types import base

_INTEGERS = ("TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT")
_NUMBERS = (*_INTEGERS, "FLOAT", "DOUBLE", "DECIMAL")
_TEXTS = ("STRING", "VARCHAR", "CHAR", "BYTES", "BINARY", "VARBINARY")
_TIMES = ("TIMESTAMP", "TIMESTAMP_LTZ", "DATE", "TIME")
_OTHERS = ("BOOLEAN",)
_DATAGEN_TYPES = (*_NUMBERS, *_TEXTS, *_TIMES, *_OTHERS)

DATAGEN_OPTIONS = {
    "connector": "datagen",
    "rows-per-second": "rows made in a second, at least 1; default 10000",
    "number-of-rows": "rows until the source ends; default: it never ends",
}
# Field option: the types of columns that take it (None: all).
DATAGEN_FIELD_OPTIONS: dict[str, tuple[str, ...] | None] = {
    "kind": None,
    "min": _NUMBERS,
    "max": _NUMBERS,
    "start": _INTEGERS,
    "end": _INTEGERS,
    "length": _TEXTS,
    "max-past": ("TIMESTAMP", "TIMESTAMP_LTZ"),
    "null-rate": None,
}
_SEQUENCE_ONLY = ("start", "end")
_RANDOM_ONLY = ("min", "max", "length", "max-past", "null-rate")

LOOKUP_OPTIONS = {
    "lookup.cache": "AUTO: by a rule; FULL, MEMORY: the whole dimension; PARTIAL: by primary key",
    "lookup.async": "true or false; no effect: rows that wait never hold up others",
    "lookup.async-thread-number": "no effect, as lookup.async",
    "lookup.bootstrap-parallelism": "no effect: the cache is filled by one reader",
    "lookup.cache-rows": "the most rows read by their keys that a process keeps",
    "lookup.bucket.shuffle-min-rows": "batches of fewer rows are joined where they are read",
    "lookup.cache-max-memory-size": "the most memory that a process uses for the dimension",
    "lookup.cache-max-disk-size": "the most local disk that a process uses for the dimension",
    "lookup.cache-spill-compression": "no effect: local files are mapped into memory as they are",
    "lookup.cache-file-retention": "how long the partial cache keeps what nobody asks for",
    "lookup.refresh.async": "true: what must be read anew is read beside, while batches go on",
    "lookup.refresh.async.pending-snapshot-count": "the most snapshots that a batch is behind then",
    "lookup.refresh.full-load-threshold": "no effect: the number of changed rows decides",
    "lookup.continuous.discovery-interval": "how often a new snapshot is looked for",
    "continuous.discovery-interval": "the same",
    "lookup.refresh.time-periods-blacklist": "when no new snapshot is joined",
    "scan.partitions": "max_pt(), max_two_pt() or named partitions: which rows are joined",
    "lookup.dynamic-partition": "the same",
    "lookup.dynamic-partition.refresh-interval": "how often the newest partition is looked for",
    "lookup.dynamic-partition.refresh.async": "the same as lookup.refresh.async for new partitions",
}
"""Dynamic options of a dimension table that concern the join, with what they do here."""

_EFFECTIVE_LOOKUP = (
    "lookup.cache",
    "lookup.continuous.discovery-interval",
    "continuous.discovery-interval",
    "lookup.refresh.time-periods-blacklist",
    "lookup.refresh.async",
    "lookup.refresh.async.pending-snapshot-count",
    "scan.partitions",
    "lookup.dynamic-partition",
    "lookup.dynamic-partition.refresh-interval",
    "lookup.dynamic-partition.refresh.async",
    "lookup.cache-rows",
    "lookup.bucket.shuffle-min-rows",
    "lookup.cache-max-memory-size",
    "lookup.cache-max-disk-size",
    "lookup.cache-file-retention",
)


def _any(key: str, value: str) -> None:
    """Every text is allowed."""


def _parallelism(key: str, value: str) -> None:
    integer(key, value, 1)


def _duration(key: str, value: str) -> None:
    if duration_ms(key, value) <= 0:
        raise OptionError(f"option '{key}': '{value}' must be longer than nothing")


def _runtime_mode(key: str, value: str) -> None:
    choice(key, value.lower(), ("streaming", "batch"))


def _zone(key: str, value: str) -> None:
    if value.upper() not in ("UTC", "ETC/UTC", "GMT", "Z", "+00:00"):
        raise OptionError(
            f"option '{key}': '{value}' is not supported; the only zone is 'UTC', and CONVERT_TZ "
            "tells a moment in another"
        )


def _name(key: str, value: str) -> None:
    if not value.strip():
        raise OptionError(f"option '{key}' is empty; give the pipeline a name")


def _result_mode(key: str, value: str) -> None:
    choice(key, value.lower(), ("table", "changelog", "tableau"))


def _boolean(key: str, value: str) -> None:
    boolean(key, value)


SET_OPTIONS: dict[str, Callable[[str, str], None]] = {
    "pipeline.name": _name,
    "execution.checkpointing.interval": _duration,
    "execution.runtime-mode": _runtime_mode,
    "parallelism.default": _parallelism,
    "table.local-time-zone": _zone,
    "sql-client.execution.result-mode": _result_mode,
    "sql-client.execution.max-table-result.rows": _parallelism,
    "sql-client.display.max-column-width": _parallelism,
    "sql-client.display.print-time-cost": _boolean,
    "sql-client.verbose": _boolean,
}
"""The keys that SET takes; those of `sql-client.` are accepted and have no effect."""


def check_set(key: str, value: str) -> str | None:
    """Check one SET; raises `OptionError` for an unknown key or a value that is not allowed.

    Returns why it has no effect here, if it is one of Flink's settings that change no result.
    """
    key = SAME_AS.get(key, key)
    if key not in SET_OPTIONS:
        why = ineffective(key, value, frozenset(SET_OPTIONS))
        if why is not None:
            return f"SET '{key}' has no effect here: {why}"
    check_known([key], SET_OPTIONS, "SET")
    SET_OPTIONS[key](key, value)
    return None


def is_lookup_option(key: str) -> bool:
    """Whether a dynamic option of a dimension table belongs to the join, not to the table."""
    return key.startswith("lookup.") or key in LOOKUP_OPTIONS


def check_lookup(options: Mapping[str, str], where: str) -> list[str]:
    """Check the options of a lookup join that belong to the join itself.

    Returns those that have no effect here, so that the runtime can say so. Options of the table
    (see `is_lookup_option`) are left to whoever knows the table's connector.
    """
    mine = {key: value for key, value in options.items() if is_lookup_option(key)}
    check_known(mine, LOOKUP_OPTIONS, where)
    for key, value in mine.items():
        if key == "lookup.cache":
            choice(key, value.upper(), ("AUTO", "FULL", "MEMORY", "PARTIAL"))
        elif key == "lookup.async" or key.endswith(".refresh.async"):
            boolean(key, value)
        elif key.endswith(("-number", "-rows", "-count", "-threshold", "parallelism")):
            integer(key, value, 0 if key.endswith("-min-rows") else 1)
        elif key.endswith(("-interval", "-retention")):
            duration_ms(key, value)
    return [key for key in mine if key not in _EFFECTIVE_LOOKUP]


def check_datagen(options: Mapping[str, str], columns: tuple[Column, ...], where: str) -> None:
    """Check a datagen table's options against its columns."""
    by_name = {column.name: column for column in columns}
    for column in columns:
        if base(column.type) not in _DATAGEN_TYPES:
            raise OptionError(f"{where}: datagen cannot make a {column.type} ('{column.name}')")
    plain = [key for key in options if not key.startswith("fields.")]
    check_known(plain, {*DATAGEN_OPTIONS, "fields.<column>.kind"}, where)
    for key, least in (("rows-per-second", 1), ("number-of-rows", 0)):
        if key in options:
            integer(key, options[key], least)
    fields: dict[str, dict[str, str]] = {}
    for key, value in options.items():
        if not key.startswith("fields."):
            continue
        name, _, option = key.removeprefix("fields.").rpartition(".")
        if name not in by_name:
            raise OptionError(f"{where}: '{key}' names no column; {nearest(name, by_name)}")
        if option not in DATAGEN_FIELD_OPTIONS:
            raise OptionError(
                f"{where}: unknown option '{key}'; {nearest(option, DATAGEN_FIELD_OPTIONS)}"
            )
        fields.setdefault(name, {})[option] = value
    for name, given in fields.items():
        _check_field(by_name[name], given, where)


def _check_field(column: Column, given: Mapping[str, str], where: str) -> None:
    prefix, word = f"fields.{column.name}.", base(column.type)
    kind = choice(f"{prefix}kind", given.get("kind", "random"), ("random", "sequence"))
    for option in given:
        types = DATAGEN_FIELD_OPTIONS[option]
        if types is not None and word not in types:
            raise OptionError(
                f"{where}: '{prefix}{option}' does not go with {column.type}; "
                f"it is for {', '.join(types)}"
            )
        if option in (_RANDOM_ONLY if kind == "sequence" else _SEQUENCE_ONLY):
            other = "random" if kind == "sequence" else "sequence"
            raise OptionError(f"{where}: '{prefix}{option}' needs '{prefix}kind' = '{other}'")
        _check_value(f"{prefix}{option}", option, given[option], word)
    if kind == "sequence":
        _check_sequence(prefix, given, word, where)
    low, high = given.get("min"), given.get("max")
    if low is not None and high is not None and float(low) > float(high):
        raise OptionError(f"{where}: '{prefix}min' is greater than '{prefix}max'")


def _check_sequence(prefix: str, given: Mapping[str, str], word: str, where: str) -> None:
    if word not in _INTEGERS:
        raise OptionError(f"{where}: '{prefix}kind' = 'sequence' is for whole numbers")
    for option in _SEQUENCE_ONLY:
        if option not in given:
            raise OptionError(f"{where}: a sequence needs '{prefix}{option}'")
    if int(given["start"]) > int(given["end"]):
        raise OptionError(f"{where}: '{prefix}start' is greater than '{prefix}end'")


def _check_value(key: str, option: str, value: str, word: str) -> None:
    if option in ("start", "end"):
        integer(key, value)
    elif option in ("min", "max"):
        _number(key, value, whole=word in _INTEGERS)
    elif option == "length":
        integer(key, value, 0)
    elif option == "max-past":
        duration_ms(key, value)
    elif option == "null-rate":
        _number(key, value, whole=False)
        if not 0 <= float(value) <= 1:
            raise OptionError(f"option '{key}': '{value}' is not between 0 and 1")


def _number(key: str, value: str, whole: bool) -> None:
    if whole:
        integer(key, value)
        return
    try:
        float(value)
    except ValueError:
        raise OptionError(f"option '{key}': '{value}' is not a number") from None
