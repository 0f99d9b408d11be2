"""The options of `jdbc` tables as sinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamhouse.connectors.base import Option
from streamhouse.options import choice, integer

_ROWS = "sink.buffer-flush.max-rows"
_RETRIES = "sink.max-retries"
_GUARANTEE = "sink.delivery-guarantee"
_COMMITS = "sink.commits-table"
_GUARANTEES = ("exactly-once", "at-least-once")
_DEFAULT_ROWS = 5_000
_DEFAULT_COMMITS = "streamhouse_commits"

WRITE_OPTIONS = (
    Option(
        _ROWS,
        "INT",
        "the most rows of one statement, which has at most 1 MB; `0`: no limit of rows",
        str(_DEFAULT_ROWS),
    ),
    Option(
        _RETRIES,
        "INT",
        "how often a transaction is tried again after a deadlock, a lock timeout or a lost "
        "connection; default: 10 times after a deadlock, for five minutes after a lost connection",
    ),
    Option(
        _GUARANTEE,
        "`exactly-once`, `at-least-once`",
        "`exactly-once`: it is an error if the user may not create or write "
        f"`{_COMMITS}`; `at-least-once`: without that table. Default: `exactly-once` where the "
        "server allows it, else `at-least-once`, with a warning",
    ),
    Option(
        _COMMITS,
        "STRING",
        "the table, `table` or `database.table`, in which each transaction records its batch",
        _DEFAULT_COMMITS,
    ),
)
WRITE_WITHOUT_EFFECT = {
    "sink.buffer-flush.interval": "a micro-batch is one transaction, written as soon as it ends",
    "sink.parallelism": "the driver writes each micro-batch, in one transaction",
}


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
    rows = integer(_ROWS, options.get(_ROWS, str(_DEFAULT_ROWS)), 0)
    retries = options.get(_RETRIES)
    guarantee = options.get(_GUARANTEE)
    return WriteOptions(
        rows or None,
        None if retries is None else integer(_RETRIES, retries, 0),
        None if guarantee is None else choice(_GUARANTEE, guarantee, _GUARANTEES),
        options.get(_COMMITS, _DEFAULT_COMMITS),
    )
