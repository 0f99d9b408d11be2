"""`WATERMARK FOR column AS expression`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from streamhouse.errors import OptionError
from streamhouse.options import duration_ms
from streamhouse.sql.parser import elements
from streamhouse.sql.parser.token_cursor import Cursor
from streamhouse.sql.plan import Column, ComputedColumn, TableInfo, Watermark
from streamhouse.sql.types import base

TIME_OPTION, EXPRESSION_OPTION = "schema.watermark.0.rowtime", "schema.watermark.0.strategy.expr"
"""The options with which Paimon's Flink catalog stores a table's watermark."""

_SPLITS = ("partition", "shard-id")
"""The keys of METADATA columns that say from which part of a source a row comes."""
_OPTIONS = "scan.watermark."
IDLE_OPTION = f"{_OPTIONS}idle-timeout"
_ALIGNED = "rows of an input that runs ahead wait in its table, and no state grows by them"
_NEEDLESS = {
    f"{_OPTIONS}alignment.group": _ALIGNED,
    f"{_OPTIONS}alignment.max-drift": _ALIGNED,
    f"{_OPTIONS}alignment.update-interval": _ALIGNED,
    f"{_OPTIONS}emit.strategy": "each batch computes the watermark of its rows",
}
"""Why an option of Flink changes no result."""
_DURATIONS = ("idle-timeout", "alignment.max-drift", "alignment.update-interval")


def of_source(
    watermark: Watermark | None,
    options: Mapping[str, str],
    where: str,
    notice: Callable[[str], None],
) -> tuple[Watermark | None, dict[str, str]]:
    """The watermark of a source with its options, and the other options.

    Calls `notice` with the text for an option that no result depends on. Raises `OptionError` for
    options of watermarks without one, and for wrong durations.
    """
    own = {key: value for key, value in options.items() if key in (IDLE_OPTION, *_NEEDLESS)}
    if own and watermark is None:
        raise OptionError(
            f"{where}: option '{next(iter(own))}' has no effect: the table has no WATERMARK; leave "
            "it out"
        )
    for key, value in own.items():
        if key.removeprefix(_OPTIONS) in _DURATIONS:
            duration_ms(key, value)
        if key in _NEEDLESS:
            notice(f"{where}: option '{key}' has no effect here: {_NEEDLESS[key]}")
    if watermark is not None and IDLE_OPTION in own:
        watermark = replace(watermark, idle_timeout=own[IDLE_OPTION])
    return watermark, {key: value for key, value in options.items() if key not in own}


def by_split(source: TableInfo) -> Watermark | None:
    """The watermark of a source, of each partition or shard if a column has these."""
    found = (column.name for column in source.columns if column.metadata in _SPLITS)
    return source.watermark and replace(source.watermark, split=next(found, ""))


@dataclass(frozen=True)
class WatermarkClause:
    """A watermark, and where the script names the column of its time."""

    watermark: Watermark
    start: int

    def check(
        self, cursor: Cursor, columns: Sequence[Column], computed: Sequence[ComputedColumn]
    ) -> None:
        """Raise `SqlError` unless the table has the column, and it is a TIMESTAMP."""
        name = self.watermark.column
        if name not in {*(c.name for c in columns), *(c.name for c in computed)}:
            names = ", ".join(column.name for column in columns)
            message = f"WATERMARK: there is no column '{name}'; known: {names}"
            raise cursor.script.error(message, self.start)
        kind = next((c.type for c in columns if c.name == name), "TIMESTAMP")
        if base(kind) not in ("TIMESTAMP", "TIMESTAMP_LTZ"):
            message = f"WATERMARK: column '{name}' is {kind}; it must be a TIMESTAMP"
            raise cursor.script.error(message, self.start)


def parse_watermark(cursor: Cursor) -> WatermarkClause:
    """Parse the rest of the clause after FOR."""
    at = cursor.offset
    column = cursor.identifier("the column of the time")
    cursor.expect("AS")
    expression = cursor.until(",")
    if not expression:
        cursor.fail("expected an expression")
    elements.checked_expression(cursor, expression)
    return WatermarkClause(Watermark(column, cursor.text_of(expression)), at)
