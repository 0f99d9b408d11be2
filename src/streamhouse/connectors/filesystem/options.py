"""The options of the `filesystem` connector, under Flink's names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from streamhouse.connectors.bad_records import FAIL, BadRecordOptions
from streamhouse.connectors.bad_records import OPTIONS as BAD_RECORDS
from streamhouse.errors import OptionError
from streamhouse.formats.base import declared_options, format_of
from streamhouse.options import DeclaredOptions, OptionValues, memory_bytes, required
from streamhouse.sql.options.store_options import (
    canonical_options,
    check_store_option,
    is_object_store,
    s3_location,
)

WHERE = "filesystem"
TEXT_FORMATS = ("csv", "json")
DEFAULT_PARTITION = "__DEFAULT_PARTITION__"
_ROLL, _INTERVAL, _NAME = (
    "sink.rolling-policy.file-size",
    "source.monitor-interval",
    "partition.default-name",
)
_POLICY = "sink.partition-commit.policy.kind"
_SUCCESS = "sink.partition-commit.success-file.name"
HIDDEN = (".", "_")
"""The beginnings of names of files and folders that readers skip."""

DECLARED = DeclaredOptions.of(__package__)
OPTIONS = (
    *DECLARED.options,
    *BAD_RECORDS,
    *declared_options(format_of(name) for name in TEXT_FORMATS),
)


@dataclass(frozen=True)
class FilesystemOptions:
    """The checked options; `monitor_ms` is None for a bounded source.

    `store`: the options of the object store that `path` is in.
    """

    path: str
    format: str
    store: Mapping[str, str] = field(default_factory=dict, repr=False)
    default_name: str = DEFAULT_PARTITION
    file_bytes: int = 128 << 20
    monitor_ms: int | None = None
    compression: str = "zstd"
    success_file: str | None = None
    bad_records: BadRecordOptions = field(default_factory=BadRecordOptions)


def parse(options: Mapping[str, str]) -> FilesystemOptions:
    """The checked options; raises `OptionError`."""
    values = OptionValues(OPTIONS, options)
    required(options, "format", WHERE)
    name = values.choice("format")
    size = memory_bytes(_ROLL, values.text(_ROLL))
    if size < 1:
        raise OptionError(f"option '{_ROLL}': '{options[_ROLL]}' is too small; the least is 1 b")
    monitor = values.duration_ms(_INTERVAL, 1) if _INTERVAL in options else None
    default = values.text(_NAME)
    if not default or "/" in default:
        raise OptionError(
            f"option '{_NAME}': '{default}' is not a name of a folder; write one without '/'"
        )
    path = required(options, "path", WHERE)
    return FilesystemOptions(
        checked_path(path),
        name,
        store_options(options, path),
        default,
        size,
        monitor,
        values.choice("parquet.compression"),
        _success_file(values),
        _bad_records(options, name),
    )


def _bad_records(options: Mapping[str, str], name: str) -> BadRecordOptions:
    parsed = BadRecordOptions.parse(options, WHERE)
    if parsed.mode != FAIL and name not in TEXT_FORMATS:
        raise OptionError(
            f"{WHERE}: 'bad-records' = '{parsed.mode}' applies to records of "
            f"{' and '.join(TEXT_FORMATS)}; a {name} file is read as a whole or not at all"
        )
    return parsed


def _success_file(values: OptionValues) -> str | None:
    if _POLICY not in values:
        if _SUCCESS in values:
            raise OptionError(f"option '{_SUCCESS}' needs '{_POLICY}' = 'success-file'")
        return None
    values.choice(_POLICY)
    name = values.text(_SUCCESS)
    if not name.startswith(HIDDEN) or "/" in name:
        raise OptionError(
            f"option '{_SUCCESS}': '{name}' must begin with '_' or '.', which readers skip"
        )
    return name


def store_options(options: Mapping[str, str], path: str) -> dict[str, str]:
    """The options of an object store; `OptionError` if there are any, but the path is in none."""
    found = {key: value for key, value in options.items() if check_store_option(key, WHERE)}
    if found and not is_object_store(path):
        raise OptionError(
            f"option '{next(iter(found))}' is of an object store, but the option 'path' is '{path}'"
            "; leave it out, or write a path that begins with 's3://'"
        )
    if found or is_object_store(path):
        canonical_options({"warehouse": path, **found}, WHERE)
    return found


def checked_path(path: str) -> str:
    """The absolute path of a path or a `file:` URL, or the location in an object store.

    `OptionError` for other file systems.
    """
    if is_object_store(path):
        return s3_location(path)
    parts = urlsplit(path)
    if parts.scheme == "file" and not parts.netloc:
        path = unquote(parts.path)
    elif "://" in path or parts.scheme == "file":
        raise OptionError(
            f"option 'path': '{path}' is neither on a local or mounted file system, where a file "
            "can be renamed atomically, nor in an object store (s3://, oss://); mount it, or write "
            "a Paimon table"
        )
    if not path:
        raise OptionError("option 'path' is empty; give a folder")
    return os.path.abspath(path)
