"""`CURRENT_WATERMARK(ts)`: up to which time the rows of a stream had arrived before a batch.

It is the greatest watermark of the rows of former batches. The tasks of a batch report that of its
rows, and the offset of the next batch has it, so a batch that runs again returns the same rows
(decision 321).
"""

from sqlglot import exp

from streamhouse.sql.expressions.binder import generate
from streamhouse.sql.functions.expression_builders import current_time_name
from streamhouse.sql.plan import Resolver
from streamhouse.sql.resolution import columns as names
from streamhouse.sql.statements.watermark import by_split
from streamhouse.sql.streaming.generated_sql import rows
from streamhouse.sql.streaming.select_reader import read_selects
from streamhouse.sql.streaming.stream_select import StreamSelect
from streamhouse.sql.syntax import Query, TextPosition
from streamhouse.sql.text import ticked


def source_watermarks(stream: StreamSelect, resolver: Resolver) -> tuple[str, list[exp.Expr]]:
    """The SQL over `src` of the greatest watermark (epoch ms) of each split, and its tree.

    Both are empty for a query without CURRENT_WATERMARK.
    Raises `UnsupportedSqlError` for the watermark of anything but the time column of a WATERMARK.
    """
    conditions = [*stream.where, *(lookup.on for lookup in stream.lookups)]
    parts = [*stream.items, *stream.group, *conditions]
    nodes = (node for part in parts for node in part.walk())
    calls = [node.expressions[0] for node in nodes if current_time_name(node) == "WATERMARK"]
    if not calls:
        return "", []
    source = stream.source
    watermark = by_split(source)
    time = ticked("ts" if watermark is None else watermark.column)
    if watermark is not None:
        split = f"CAST({ticked(watermark.split)} AS STRING)" if watermark.split else "''"
        table = ".".join(map(ticked, source.name))
        text = f"SELECT {time} AS `time`, {watermark.expression} AS `at`, {split} AS `split`"
        own = names.parse_query(Query(f"{text} FROM {table}", TextPosition(1, 1)))
        (top,) = read_selects(own, resolver)
        if all(_read(stream, call) == _read(top, top.items[0]) for call in calls):
            timed = rows(top, top.items, top.names, signed=True)
            greatest = 'epoch_ms(MAX(CAST("at" AS TIMESTAMP)))'
            sql = f"SELECT split, {greatest} FROM ({generate(timed)}) GROUP BY split"
            return sql, [timed]
    message = f"CURRENT_WATERMARK takes the time column of the WATERMARK of {source.name[-1]}" + (
        f": write CURRENT_WATERMARK({time})" if watermark else ", which has none"
    )
    raise stream.script.unsupported(calls[0], message)


def _read(top: StreamSelect, item: exp.Expr) -> str:
    """What an expression computes from the source's columns, as text; empty if not from these."""
    item = item.unalias().unnest().copy()
    for column in item.find_all(exp.Column):
        if column.table != top.alias:
            return ""
        column.set("table", None)
    return item.sql("duckdb")
