"""The options of the Spark data source `paimon`, parsed once."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError
from streamhouse.options import OptionValues, integer, of_option, options_of, table_of
from streamhouse.paimon.changelog.consumer_progress import CONSUMER_KEYS
from streamhouse.paimon.changelog.scan_options import SCAN_KEYS, TABLE_KEYS
from streamhouse.paimon.schema.table_name import MAIN, TableName, split_identifier
from streamhouse.sql.options.catalog_options import (
    WAREHOUSE_KEYS,
    check_catalog,
    is_warehouse_option,
)
from streamhouse.sql.options.store_options import canonical_options, check_store_option
from streamhouse.sql.options.time_travel_options import TRAVEL_KEYS, split_options
from streamhouse.sql.plan import AsOf

_WHERE = "format 'paimon'"
_TABLE = table_of(__package__, "options.toml")
_OWN, _TRAVEL = options_of(_TABLE["own"]), _TABLE["travel"]
_LIMITS, _WRITE_KEYS = _TABLE["keys"]["limits"], _TABLE["keys"]["write"]
_LIMIT_KEYS = {
    spelling.lower(): name for name in _LIMITS for spelling in (name, f"read.stream.{name}")
}
_CATALOG_KEYS = (*WAREHOUSE_KEYS, "case-sensitive")
_CATALOG_PREFIXES = ("hadoop.", "dlf.", "header.", "file-io.")
_STREAM_KEYS = (*SCAN_KEYS, *CONSUMER_KEYS)
_KNOWN = (
    *_TABLE["own"], *_TRAVEL, *_LIMITS, *_STREAM_KEYS, *TRAVEL_KEYS, *TABLE_KEYS, *_WRITE_KEYS
)  # fmt: skip
_ALL = (*_KNOWN, *_CATALOG_KEYS)


@dataclass(frozen=True)
class DataSourceOptions:
    """The parsed values of `.option(…)` and `.load("database.table")`.

    `limits` has the limit of a micro-batch by option name, such as `maxRowsPerTrigger`; `travel`
    the time-travel options that only a batch read takes. `identifier` includes the branch.
    """

    catalog: Mapping[str, str]
    identifier: str
    columns: tuple[str, ...] | None = None
    row_kind: bool = of_option("rowkind", False)
    push_filters: bool = of_option("filter-pushdown", False)
    by_key: bool = False
    parallelism: int = 1
    limits: Mapping[str, int] = field(default_factory=dict)
    scan: Mapping[str, str] = field(default_factory=dict)
    travel: Mapping[str, str] = field(default_factory=dict)
    table: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_stream(self) -> bool:
        """Whether there are options that only a stream takes."""
        return bool(self.limits) or bool(self.scan.keys() - {"scan.snapshot-id"})

    @property
    def as_of(self) -> AsOf:
        """The snapshot, tag, version or time that a batch read reads."""
        travel_options = {**self.travel, **self.scan}
        return split_options(
            {key: travel_options[key] for key in TRAVEL_KEYS if key in travel_options}
        )[1]

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Parse options, keys in any case; `OptionError` for unknown, missing and wrong ones."""
        values = {key.lower(): value for key, value in options.items()}
        for key in values:
            _check(key)
        check_catalog({k: v for k, v in values.items() if is_warehouse_option(k)}, _WHERE)
        if not values.get("warehouse"):
            raise OptionError(
                "format 'paimon': option 'warehouse' is missing; write "
                '.option("warehouse", <folder or URI>)'
            )
        if not values.get("path"):
            raise OptionError(
                "format 'paimon': no table is named; write .load(\"database.table\") to read, "
                '.save("database.table") or .option("path", …) to write'
            )
        travel = _travel(values)
        columns = values.get("columns")
        own = OptionValues(_OWN, values)
        return own.record(
            cls,
            catalog=canonical_options(
                {key: value for key, value in values.items() if _is_catalog(key)}, _WHERE
            ),
            identifier=_identifier(values["path"], values.get("branch")),
            columns=None if columns is None else _names(columns),
            by_key=own["distribution"] == "by-key",
            parallelism=own["scan.parallelism"] or 4 * (os.cpu_count() or 1),
            limits=_limits(values),
            scan={key: value for key, value in {**values, **travel}.items() if key in _STREAM_KEYS},
            travel={key: value for key, value in travel.items() if key not in _STREAM_KEYS},
            table={key: values[key] for key in (*TABLE_KEYS, *_WRITE_KEYS) if key in values},
        )


def _check(key: str) -> None:
    known = {name.lower() for name in _ALL} | set(_LIMIT_KEYS)
    if check_store_option(key, _WHERE) or is_warehouse_option(key):
        return
    if key not in known and not key.startswith(_CATALOG_PREFIXES):
        raise OptionError(f"{_WHERE}: unknown option '{key}'; {nearest(key, _ALL)}")


def _is_catalog(key: str) -> bool:
    if key in _CATALOG_KEYS or is_warehouse_option(key):
        return True
    return key.startswith(_CATALOG_PREFIXES)


def _names(columns: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in columns.split(",") if name.strip())
    if not names:
        raise OptionError("option 'columns' is empty; list column names, separated by commas")
    return names


def _limits(values: Mapping[str, str]) -> dict[str, int]:
    limits = {
        _LIMIT_KEYS[key]: integer(_LIMIT_KEYS[key], value, 1)
        for key, value in values.items()
        if key in _LIMIT_KEYS
    }
    if len(limits) > 1:
        raise OptionError(f"options {' and '.join(limits)} cannot be combined; set one of them")
    return limits


def _travel(values: Mapping[str, str]) -> dict[str, str]:
    """The time-travel options, by their Paimon names."""
    travel_options = {key: values[key] for key in TRAVEL_KEYS if key in values}
    for short, key in _TRAVEL.items():
        if short in values and key in travel_options:
            raise OptionError(f"options '{short}' and '{key}' are aliases; set one of them")
        if short in values:
            travel_options[key] = values[short]
    split_options(travel_options)
    return travel_options


def _identifier(path: str, branch: str | None) -> str:
    if branch is None:
        return path
    database, name = split_identifier(path)
    parsed = TableName.parse(name)
    if parsed.branch not in (MAIN, branch):
        raise OptionError(
            f"option 'branch' is '{branch}', but the table {path} names another branch; keep one"
        )
    return f"{database}.{parsed.on(branch)}"
