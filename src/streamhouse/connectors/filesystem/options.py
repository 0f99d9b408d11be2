"""The options of the `filesystem` connector, under Flink's names."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from streamhouse.connectors.bad_records import FAIL, BadRecordOptions
from streamhouse.connectors.bad_records import OPTIONS as BAD_RECORDS
from streamhouse.errors import OptionError
from streamhouse.formats.base import declared_options, format_of
from streamhouse.options import DeclaredOptions, OptionValues, of_option
from streamhouse.sql.options.store_options import (
    canonical_options,
    check_store_option,
    is_object_store,
    s3_location,
)

WHERE = "filesystem"
TEXT_FORMATS = ("csv", "json")
DEFAULT_PARTITION = "__DEFAULT_PARTITION__"
_NAME = "partition.default-name"
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
    default_name: str = of_option(_NAME, DEFAULT_PARTITION)
    file_bytes: int = of_option("sink.rolling-policy.file-size", 128 << 20)
    monitor_ms: int | None = of_option("source.monitor-interval", None)
    compression: str = of_option("parquet.compression", "zstd")
    success_file: str | None = None
    bad_records: BadRecordOptions = field(default_factory=BadRecordOptions)


def parse(options: Mapping[str, str]) -> FilesystemOptions:
    """The options, whose values `Connector.check` has checked; raises `OptionError`."""
    values = OptionValues(OPTIONS, options)
    path, default = values["path"], values[_NAME]
    if not default or "/" in default:
        raise OptionError(
            f"option '{_NAME}': '{default}' is not a name of a folder; write one without '/'"
        )
    return values.record(
        FilesystemOptions,
        path=checked_path(path),
        format=values["format"],
        store=store_options(options, path),
        success_file=_success_file(values),
        bad_records=_bad_records(values),
    )


def _bad_records(values: OptionValues) -> BadRecordOptions:
    parsed, name = values.record(BadRecordOptions), values["format"]
    if parsed.mode != FAIL and name not in TEXT_FORMATS:
        raise OptionError(
            f"{WHERE}: 'bad-records' = '{parsed.mode}' applies to records of "
            f"{' and '.join(TEXT_FORMATS)}; a {name} file is read as a whole or not at all"
        )
    return parsed


def _success_file(values: OptionValues) -> str | None:
    if values["sink.partition-commit.policy.kind"] is None:
        return None
    name = str(values[_SUCCESS])
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
