"""Table options of earlier Paimon releases that a later one renamed or dropped.

`since` and `until` are the first and the last release whose sources define the key as the option's
own name (0.2 to 2.0 were examined). Paimon itself still accepts some of the renamed ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from streamhouse.errors import OptionError
from streamhouse.options import boolean, choice

_NO_CHANGES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Renamed:
    """An option that has another name now.

    `values` maps old values to current ones, where these changed, too.
    """

    since: str
    until: str
    now: str
    values: Mapping[str, str] = field(default_factory=lambda: _NO_CHANGES)


@dataclass(frozen=True)
class Dropped:
    """An option that no longer has an effect; `why` is the reason or the current behaviour.

    `check` raises `OptionError` for a value that would change which rows a table returns.
    """

    since: str
    until: str
    why: str
    check: Callable[[str, str], None] | None = None


def _only_table(key: str, value: str) -> None:
    choice(key, value, ("table",))


_LOG = "the log system was removed in 1.4: streams read the table's own files"
_APPEND = "small files of append tables are merged by 'compaction.min.file-num'"
_PARSED = "rows with the same 'sequence.field' keep the order in which they are written"

RENAMED: Mapping[str, Renamed] = {
    "blob.stored-descriptor-fields": Renamed("1.4", "1.4", "blob-descriptor-field"),
    "changelog-producer.lookup-wait": Renamed("0.4", "0.8", "lookup-wait"),
    "changelog.precommit-compact": Renamed("1.0", "1.0", "precommit-compact"),
    "deduplicate.ignore-delete": Renamed("0.7", "0.7", "ignore-delete"),
    "delete-file.thread-num": Renamed("0.9", "1.2", "file-operation.thread-num"),
    "field-delimiter": Renamed("1.0", "1.2", "csv.field-delimiter"),
    "first-row.ignore-delete": Renamed("0.6", "0.7", "ignore-delete"),
    "log.scan": Renamed("0.2", "0.2", "scan.mode"),
    "log.scan.remove-normalize": Renamed("0.2", "0.5", "scan.remove-normalize"),
    "log.scan.timestamp-millis": Renamed("0.2", "0.2", "scan.timestamp-millis"),
    "lookup.dynamic-partition": Renamed("0.8", "1.0", "scan.partitions"),
    "metadata.iceberg-compatible": Renamed(
        "0.9", "0.9", "metadata.iceberg.storage",
        {"true": "table-location", "false": "disabled"},
    ),
    "orc.write.batch-size": Renamed("0.5", "0.9", "write.batch-size"),
    "parquet.variant.shreddingSchema": Renamed("1.3", "1.3", "variant.shreddingSchema"),
    "partial-update.ignore-delete": Renamed("0.3", "0.7", "ignore-delete"),
    "sink.clustering.by-columns": Renamed("0.9", "1.2", "clustering.columns"),
    "sink.clustering.strategy": Renamed("0.9", "1.2", "clustering.strategy"),
    "snapshot.expire.clean-empty-directories": Renamed(
        "0.6", "0.8", "snapshot.clean-empty-directories"
    ),
    "streaming-read.shuffle-bucket-with-partition": Renamed(
        "0.9", "1.1", "read.shuffle-bucket-with-partition"
    ),
    "write.compaction-skip": Renamed("0.2", "0.2", "write-only"),
}  # fmt: skip
"""Old keys, and the option that each of them is now."""

DROPPED: Mapping[str, Dropped] = {
    "append-only.assert-disorder": Dropped("0.4", "0.4", "it checked Paimon's own reader"),
    "changelog-producer.compaction-interval": Dropped(
        "0.3", "0.3",
        "a table with 'changelog-producer' = 'full-compaction' is fully compacted after each "
        "commit, or as often as 'full-compaction.delta-commits' says",
    ),
    "compaction.early-max.file-num": Dropped("0.2", "0.3", _APPEND),
    "compaction.max-sorted-run-num": Dropped(
        "0.2", "0.4", "a compaction takes as many sorted runs as it needs"
    ),
    "compaction.max.file-num": Dropped("0.4", "1.0", _APPEND),
    "kafka.bootstrap.servers": Dropped("0.2", "1.3", _LOG),
    "kafka.topic": Dropped("0.2", "1.3", _LOG),
    "log.changelog-mode": Dropped("0.2", "1.3", _LOG),
    "log.consistency": Dropped("0.2", "1.3", _LOG),
    "log.format": Dropped("0.2", "1.3", _LOG),
    "log.ignore-delete": Dropped("1.1", "1.3", _LOG),
    "log.key.format": Dropped("0.2", "1.3", _LOG),
    "log.retention": Dropped("0.2", "0.3", _LOG),
    "log.system": Dropped("0.2", "1.3", _LOG),
    "log.system.auto-register": Dropped("0.5", "1.3", _LOG),
    "log.system.auto-register-timeout": Dropped("0.5", "1.3", _LOG),
    "log.system.partitions": Dropped("0.5", "1.3", _LOG),
    "log.system.replication": Dropped("0.5", "1.3", _LOG),
    "lookup.local-file-type": Dropped(
        "0.9", "1.3", "dimensions are stored as Arrow data, sorted by their keys"
    ),
    "object-location": Dropped("1.0", "1.2", "there are no object tables"),
    "partition.mark-done-action.http.timeout": Dropped(
        "1.1", "1.1", "the timeout of the HTTP client is fixed"
    ),
    "record-level.time-field-type": Dropped(
        "0.9", "0.9", "the type of the column 'record-level.time-field' determines its unit"
    ),
    "scan.push-down": Dropped(
        "0.5", "0.9", "projections and filters are always pushed down into scans"
    ),
    "sequence.auto-padding": Dropped("0.5", "0.7", _PARSED),
    "streaming-compact": Dropped("0.4", "0.5", "tables are compacted while queries run"),
    "streaming-read-atomic": Dropped("0.4", "0.4", "a micro-batch ends with a snapshot"),
    "streaming-read-mode": Dropped("0.4", "1.3", _LOG),
    "type": Dropped("1.0", "1.4", "it is the default type of a table", _only_table),
    "write-manifest-cache": Dropped("0.4", "1.2", "manifests are cached without it"),
    "write-mode": Dropped(
        "0.2", "0.5", "a table with a PRIMARY KEY takes changes, one without it only appends"
    ),
}  # fmt: skip
"""Options without effect, and why."""

_FAMILIES = {"kafka.": Dropped("0.2", "1.3", _LOG)}
"""The same, by prefix of the key."""

DEFAULT_VALUE = re.compile(r"fields\.(?P<column>.+)\.default-value")
"""`fields.<column>.default-value` (0.5 to 1.1) is now the column's own default."""

_ENUMERATED = frozenset(
    (
        "bucket-function.type",
        "changelog-producer",
        "deletion-vectors.enabled",
        "ignore-delete",
        "lookup-compact",
        "merge-engine",
        "sequence.field.sort-order",
    )
)
"""Options whose values Paimon reads in any case: Flink may have written `AGGREGATION`."""


def renamed(key: str) -> str:
    """The current name of an option."""
    option = RENAMED.get(key)
    return key if option is None else option.now


def current(options: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The options under their current names, and a notice for each that is outdated.

    Options without effect stay as they are. Raises `OptionError` if an option has different values
    under its old and its new name, or if its `check` fails.
    """
    current_options: dict[str, str] = {}
    written_keys: dict[str, str] = {}
    notices = []
    for key, value in options.items():
        name, current_value = _current(key, value)
        if current_options.get(name, current_value) != current_value:
            raise OptionError(
                f"option '{written_keys[name]}' is '{current_options[name]}' and '{key}' is "
                f"'{current_value}', but both are now option '{name}'; set one of them"
            )
        current_options[name], written_keys[name] = current_value, key
        notice = _notice(key, name, value, current_value)
        if notice is not None:
            notices.append(notice)
    return current_options, notices


def _current(key: str, value: str) -> tuple[str, str]:
    option = RENAMED.get(key)
    if option is None:
        dropped = DROPPED.get(key)
        if dropped is not None and dropped.check is not None:
            dropped.check(key, value)
        return key, value
    if not option.values:
        return option.now, value
    text = str(boolean(key, value)).lower()
    return option.now, option.values[text]


def _notice(key: str, name: str, value: str, current_value: str) -> str | None:
    """The notice about an option of an earlier release; None for a current option."""
    if name != key:
        last = RENAMED[key].until
        notice = f"option '{key}' (Paimon {last} and before) is now '{name}'"
        return (
            notice
            if current_value == value
            else f"{notice}: '{value}' is read as '{current_value}'"
        )
    default = DEFAULT_VALUE.fullmatch(key)
    if default is not None:
        return (
            f"option '{key}' (Paimon 1.1 and before) is now the default of column "
            f"'{default['column']}': it replaces nulls in rows written from now on"
        )
    dropped = dropped_option(key)
    if dropped is None or key == "type":
        return None
    return (
        f"option '{key}' (Paimon {dropped.until} and before) no longer has an effect: {dropped.why}"
    )


def dropped_option(key: str) -> Dropped | None:
    """The record of an option that no longer has an effect; None for any other."""
    option = DROPPED.get(key)
    return option or next(
        (family for start, family in _FAMILIES.items() if key.startswith(start)), None
    )


def stored(options: Mapping[str, str]) -> dict[str, str]:
    """The options of an existing table under their current names, enumerated values in lower case.

    As in Paimon, a value under the current name takes precedence over one under an old name.
    """
    stored_options = {key: value for key, value in options.items() if key not in RENAMED}
    for key, value in options.items():
        if key in RENAMED:
            name, current_value = _current(key, value)
            stored_options.setdefault(name, current_value)
    for key in _ENUMERATED & stored_options.keys():
        stored_options[key] = stored_options[key].lower()
    return stored_options


def defaults(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The options without `fields.<column>.default-value`, and each column's default."""
    rest, column_defaults = {}, {}
    for key, value in options.items():
        match = DEFAULT_VALUE.fullmatch(key)
        if match is None:
            rest[key] = value
        else:
            column_defaults[match["column"]] = value
    return rest, column_defaults
