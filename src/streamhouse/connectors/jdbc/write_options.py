"""The options of `jdbc` tables as sinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamhouse.options import DeclaredOptions, OptionValues

_OPTIONS = DeclaredOptions.of(__package__).options
_RETRIES, _GUARANTEE = "sink.max-retries", "sink.delivery-guarantee"


@dataclass(frozen=True)
class WriteOptions:
    """The checked options of a sink; `guarantee` is None if the server decides.

    `statement_rows`: of one statement, None: no limit; `retries`: None is the default.
    """

    statement_rows: int | None
    retries: int | None
    guarantee: str | None
    commits_table: str


def parse_write(options: Mapping[str, str]) -> WriteOptions:
    """The checked options; raises `OptionError`."""
    values = OptionValues(_OPTIONS, options)
    return WriteOptions(
        values.integer("sink.buffer-flush.max-rows", 0) or None,
        values.integer(_RETRIES, 0) if _RETRIES in options else None,
        values.choice(_GUARANTEE) if _GUARANTEE in options else None,
        values.text("sink.commits-table"),
    )
