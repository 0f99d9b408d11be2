"""What happens to records that a source cannot decode: options of its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamhouse.connectors.base import Option
from streamhouse.errors import OptionError
from streamhouse.options import choice

FAIL, SKIP, TABLE = "fail", "skip", "table"
MODES = (FAIL, SKIP, TABLE)
_MODE, _TABLE = "bad-records", "bad-records.table"
OPTIONS = (
    Option(
        _MODE, "`fail`, `skip`, `table`",
        "what happens to a record that cannot be decoded, or whose values do not fit: the query "
        "fails, or skips and counts it, or writes it into `bad-records.table`",
        FAIL,
    ),
    Option(
        _TABLE, "STRING",
        "the Paimon table that gets bad records (dead-letter table), such as `shop.bad_orders`; "
        "created if it does not exist",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class BadRecordOptions:
    """What happens to bad records; `table` is set if they are written into a table."""

    mode: str = FAIL
    table: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str], where: str) -> BadRecordOptions:
        """Raises `OptionError`."""
        mode, table = choice(_MODE, options.get(_MODE, FAIL), MODES), options.get(_TABLE)
        if (table is not None) != (mode == TABLE):
            verb = "needs" if mode == TABLE else "does not use"
            raise OptionError(f"{where}: '{_MODE}' = '{mode}' {verb} '{_TABLE}'")
        return cls(mode, table)

    def check_changes(self, where: str) -> None:
        """Raise `OptionError` if bad records of a changelog would be left out."""
        if self.mode != FAIL:
            raise OptionError(
                f"{where}: '{_MODE}' = '{self.mode}' would leave out changes of rows, so the rows "
                f"would be wrong from then on; leave it at '{FAIL}'"
            )
