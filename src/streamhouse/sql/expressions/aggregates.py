"""Aggregates with Flink's types and values.

SUM and AVG have the type of their argument; for decimals they have 38 digits, and AVG is exact.
FIRST_VALUE and LAST_VALUE skip nulls. An aggregate is replaced together with its FILTER and OVER,
since no other node may be between them.
"""

from duckdb.sqltypes import DuckDBPyType
from sqlglot import exp

from streamhouse.sql.expressions import numbers, type_probe
from streamhouse.sql.expressions.binder import Relations
from streamhouse.sql.functions.expression_builders import SUMMAND, call, cast
from streamhouse.sql.functions.macros import filled
from streamhouse.sql.types import duck_type, flink_type

_WRAPPERS = (exp.Filter, exp.Window, exp.IgnoreNulls, exp.RespectNulls)
_WIDE, _NARROWED = "wide", "narrowed"
_INTEGERS = ("tinyint", "smallint", "integer", "bigint")
_WIDER = {"float": "DOUBLE"}
_KNOWN = (
    exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT, exp.DType.FLOAT,
    exp.DType.DOUBLE,
)  # fmt: skip
_FLOATING = ("float", "double")
_COMPENSATED = "compensated"
_BRACKETS = {"JSON_ARRAYAGG": ("[", "]"), "JSON_OBJECTAGG": ("{", "}")}
_ORDERED: dict[type[exp.Expr], str] = {exp.FirstValue: "FIRST", exp.LastValue: "LAST"}


def is_complete(node: exp.Expr) -> bool:
    """Whether a node is an aggregate together with its FILTER, OVER and IGNORE NULLS."""
    part = isinstance(node.parent, _WRAPPERS) and node.arg_key == "this"
    return not part and isinstance(_core(node), exp.AggFunc)


def _core(node: exp.Expr) -> exp.Expr:
    while isinstance(node, _WRAPPERS):
        node = node.this
    return node


def _with_aggregate(whole: exp.Expr, aggregate_node: exp.Expr) -> exp.Expr:
    """Another aggregate with the FILTER and OVER of `whole`."""
    if not isinstance(whole, _WRAPPERS):
        return aggregate_node
    new = whole.copy()
    _core(new).replace(aggregate_node)
    return new


def translated(whole: exp.Expr, relations: Relations) -> exp.Expr | None:
    """The DuckDB form of an aggregate; None if it depends on a type that is unknown."""
    core = _core(whole)
    if isinstance(core, exp.AnonymousAggFunc) and core.name in _BRACKETS:
        return _json(whole, core)
    if isinstance(core, exp.AnonymousAggFunc) and core.name == "PERCENTILE":
        return _percentile(whole, *core.expressions)
    name = _ORDERED.get(type(core))
    return _with_flink_type(whole, relations) if name is None else _ordered(whole, core, name)


def _json(whole: exp.Expr, core: exp.AnonymousAggFunc) -> exp.Expr:
    """JSON_ARRAYAGG and JSON_OBJECTAGG: the texts of the members, joined by commas.

    JSON_OBJECTAGG ends the query for a NULL key and for a duplicate key.
    """
    member, *keys = core.expressions
    start, end = _BRACKETS[core.name]
    listed = _with_aggregate(whole, call("STRING_AGG", member.copy(), exp.Literal.string(",")))
    text = filled(f"('{start}' || COALESCE(listed, '') || '{end}')::VARCHAR", listed=listed)
    for key in keys:
        rows, named, distinct = (
            _with_aggregate(whole, exp.Count(this=counted, big_int=True))
            for counted in (exp.Star(), key.copy(), exp.Distinct(expressions=[key.copy()]))
        )
        text = filled(
            "CASE WHEN named <> distinct_ THEN ERROR('JSON_OBJECTAGG: a key occurs more than once')"
            " ELSE CASE WHEN rows_ <> named THEN ERROR('JSON_OBJECTAGG: a key must not be NULL')"
            " ELSE listed END END",
            rows_=rows, named=named, distinct_=distinct, listed=text,
        )  # fmt: skip
    return text


def _percentile(
    whole: exp.Expr, value: exp.Expr, percentage: exp.Expr, frequency: exp.Expr
) -> exp.Expr:
    """PERCENTILE of values that count `frequency` times each; nulls do not count."""
    copies = filled(
        "CASE WHEN NOT value IS NULL THEN REPEAT(one, frequency::BIGINT) END",
        value=value.copy(), frequency=frequency.copy(),
        one=exp.Array(expressions=[cast(value.copy(), "DOUBLE")]),
    )  # fmt: skip
    order = exp.Order(this=copies, expressions=[exp.Ordered(this=copies.copy())])
    every = _with_aggregate(whole, exp.ArrayAgg(this=order))
    return filled(
        "LIST_AGGREGATE(FLATTEN(every), 'quantile_cont', share)",
        every=every, share=percentage.copy(),
    )  # fmt: skip


def _ordered(whole: exp.Expr, core: exp.Expr, name: str) -> exp.Expr:
    """FIRST_VALUE or LAST_VALUE, which skip nulls, unless RESPECT NULLS is written."""
    if isinstance(whole, exp.Window):
        if isinstance(whole.this, exp.RespectNulls):
            return whole
        return _with_aggregate(_without_null_treatment(whole), exp.IgnoreNulls(this=core.copy()))
    not_null = filled("NOT value IS NULL", value=core.this.copy())
    if isinstance(whole, exp.Filter):
        not_null = exp.and_(whole.expression.this.copy(), not_null)
    return exp.Filter(this=call(name, core.this.copy()), expression=exp.Where(this=not_null))


def _without_null_treatment(whole: exp.Expr) -> exp.Expr:
    new = whole.copy()
    inner = new.find(exp.IgnoreNulls, exp.RespectNulls)
    if inner is not None:
        inner.replace(inner.this)
    return new


def _with_flink_type(whole: exp.Expr, relations: Relations) -> exp.Expr | None:
    """Give SUM, AVG or COLLECT Flink's result type; other aggregates stay.

    None if the argument's type is unknown; a SUM then stays as it is.
    """
    core = _core(whole)
    collects = isinstance(core, exp.AnonymousAggFunc) and core.name == "COLLECT"
    if not isinstance(core, exp.Sum | exp.Avg) and not collects:
        return whole
    argument = _argument(core)
    kinds = type_probe.types(whole, [argument], relations)
    if kinds is None and argument.type is not None and argument.is_type(*_KNOWN):
        # The type cannot be probed in a correlated subquery; take the one that was inferred.
        kinds = [DuckDBPyType(argument.type.sql("duckdb"))]
    if kinds is None:
        return whole if isinstance(core, exp.Sum) else None
    kind = kinds[0]
    if kind.id in _FLOATING:
        core.meta[_COMPENSATED] = True
    if collects:
        return _multiset(whole, core, kind)
    return _sum(whole, core, kind) if isinstance(core, exp.Sum) else _average(whole, core, kind)


def _argument(core: exp.Expr) -> exp.Expr:
    value: exp.Expr = core.expressions[0] if core.expressions else core.this
    summands = (node.this for node in value.find_all(exp.Cast) if node.meta.get(SUMMAND))
    value = next(summands, value)
    return value.expressions[0] if isinstance(value, exp.Distinct) else value


def _sum(whole: exp.Expr, core: exp.Expr, kind: DuckDBPyType) -> exp.Expr:
    if kind.id not in (*_INTEGERS, *_WIDER):
        return whole
    wider = _WIDER.get(kind.id, "BIGINT")
    if _argument(core) is not core.this and kind.id == "bigint":
        wider = "DECIMAL(38, 0)"  # the opposite of the smallest BIGINT is no BIGINT
    if core.meta.get(_WIDE):
        return cast(whole.copy(), wider)
    narrowed = cast(whole.copy(), str(kind))
    narrowed.meta[_NARROWED] = wider
    return narrowed


def _average(whole: exp.Expr, core: exp.Expr, kind: DuckDBPyType) -> exp.Expr:
    if kind.id in _WIDER:
        return cast(whole.copy(), str(kind))
    total = _with_aggregate(whole, exp.Sum(this=core.this.copy()))
    count = _with_aggregate(whole, exp.Count(this=core.this.copy(), big_int=True))
    if kind.id in _INTEGERS:
        # DuckDB's AVG computes with DOUBLE, which has about 16 digits only.
        return cast(exp.Paren(this=exp.IntDiv(this=total, expression=count)), str(kind))
    digits = numbers.digits(kind)
    return whole if digits is None else numbers.average(total, count, digits[1])


def _multiset(whole: exp.Expr, core: exp.Expr, kind: DuckDBPyType) -> exp.Expr:
    """COLLECT: a map from each non-null value to the number of its occurrences."""
    counts = _with_aggregate(
        whole, call("HISTOGRAM", *(expression.copy() for expression in core.expressions))
    )
    non_null = exp.Coalesce(this=counts, expressions=[call("MAP")])
    return cast(non_null, f"MAP({duck_type(flink_type(kind))}, INTEGER)")


class FloatSum(exp.Sum):
    """DuckDB's compensated sum: threads may add rows in any order without another result."""

    _sql_names = ["FSUM"]


class FloatAverage(exp.Avg):
    """DuckDB's compensated average."""

    _sql_names = ["FAVG"]


def compensate(tree: exp.Expr) -> None:
    """Replace sums and averages of floating-point numbers by DuckDB's compensated ones."""
    for node in list(tree.find_all(exp.Sum, exp.Avg)):
        if node.meta.get(_COMPENSATED):
            kind = FloatSum if isinstance(node, exp.Sum) else FloatAverage
            node.replace(kind(this=node.this))


def widen(node: exp.Expr) -> None:
    """Mark a SUM for a target column: its type is BIGINT or DOUBLE, not its argument's type."""
    if isinstance(node, exp.Sum):
        node.meta[_WIDE] = True


def widened(item: exp.Expr) -> exp.Expr:
    """A sum cast to BIGINT or DOUBLE instead of its argument's type; other aggregates stay."""
    wider = item.meta.get(_NARROWED)
    return item if wider is None else cast(item.this, wider)
