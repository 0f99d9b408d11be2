"""Types of the expressions in a translated tree: inferred from their parts, or bound by DuckDB.

sqlglot's own inference has the types of other engines: for it `2.5` is a DOUBLE, and the type of a
function that it does not know is unknown. Here a type is inferred only where it certainly is the
one that DuckDB will give. All other expressions are bound, but only if a translation needs
their type.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from duckdb.sqltypes import DuckDBPyType
from sqlglot import exp
from sqlglot.errors import ParseError

from streamhouse.sql.expressions import intervals, timestamp_digits, type_probe
from streamhouse.sql.expressions.binder import Relations
from streamhouse.sql.expressions.timestamp_digits import Declared, results
from streamhouse.sql.select_parts import cte_of, sources

_UNKNOWN = exp.DataType(this=exp.DType.UNKNOWN)
_NULL = exp.DataType(this=exp.DType.NULL)
_BOOLEAN = exp.DataType(this=exp.DType.BOOLEAN)
_VARCHAR = exp.DataType(this=exp.DType.VARCHAR)
_DECIMAL = exp.DataType(this=exp.DType.DECIMAL)
_DOUBLE = exp.DataType(this=exp.DType.DOUBLE)
_INTERVAL = exp.DataType(this=exp.DType.INTERVAL)
_INTEGERS = [
    exp.DataType(this=kind)
    for kind in (exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT)
]
"""From the narrowest to the widest."""
_INT, _BIGINT = _INTEGERS[2:]
_EXACT = {kind.this for kind in (*_INTEGERS, _DECIMAL)}
_TEXTS = exp.DataType.TEXT_TYPES
_SUMMED = (exp.DType.DECIMAL, exp.DType.DOUBLE)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.Div, exp.IntDiv)
_OF_ARGUMENT = (
    exp.Abs, exp.Alias, exp.Filter, exp.First, exp.FirstValue, exp.IgnoreNulls,
    exp.Last, exp.LastValue, exp.Max, exp.Min, exp.Neg, exp.Nullif, exp.Order, exp.Paren,
    exp.RespectNulls, exp.Window,
)  # fmt: skip
"""Nodes with the type of `this`."""
_RETURNS: dict[type[exp.Expr], exp.DataType] = {
    **dict.fromkeys((exp.Between, exp.Boolean, exp.Exists, exp.In, exp.Not), _BOOLEAN),
    **dict.fromkeys((exp.DPipe, exp.Lower, exp.Trim, exp.Upper), _VARCHAR),
    **dict.fromkeys((exp.Count, exp.DenseRank, exp.Rank, exp.RowNumber), _BIGINT),
    exp.Interval: _INTERVAL,
    exp.Null: _NULL,
}
_FIRST_PARTS = ("with_", "from_", "joins", "laterals", "where", "group")
"""The parts of a SELECT on whose types the other parts depend."""


@lru_cache(maxsize=1024)
def _parsed(kind: str) -> exp.DataType:
    try:
        return exp.DataType.build(kind, dialect="duckdb")
    except ParseError:
        return _UNKNOWN


def _of_duckdb(kind: DuckDBPyType) -> exp.DataType:
    """A DuckDB type as sqlglot's; UNKNOWN if it has none."""
    if kind.id == "null":
        return _NULL
    if kind.id not in ("list", "map", "tuple"):
        return _parsed(str(kind))
    parts = [_of_duckdb(part) for _, part in kind.children if isinstance(part, DuckDBPyType)]
    nested = {"list": exp.DType.ARRAY, "map": exp.DType.MAP, "tuple": exp.DType.STRUCT}
    return _nested(nested[kind.id], *parts)


def _nested(kind: exp.DType, *parts: exp.DataType) -> exp.DataType:
    return exp.DataType(this=kind, expressions=[part.copy() for part in parts], nested=True)


def _of_known(kind: exp.DType, *parts: exp.DataType) -> exp.DataType:
    """A nested type; UNKNOWN if one of its parts is."""
    return _nested(kind, *parts) if all(map(_is_known, parts)) else _UNKNOWN


class OperandTypes:
    """The types of a tree's nodes; `infer` must visit them in the order of `inner_first`."""

    def __init__(self, relations: Relations, declared: Declared) -> None:
        self._relations = relations
        self._declared = declared
        self._outer: dict[int, exp.Select | None] = {}
        self._sources: dict[int, dict[str, exp.Expr]] = {}
        self._columns: dict[tuple[int, str], exp.DataType] = {}

    def inner_first(self, tree: exp.Expr) -> Iterator[tuple[exp.Expr, exp.Select | None]]:
        """All nodes, each with the SELECT around it; a node's type depends on earlier ones only."""
        nodes: list[tuple[exp.Expr, exp.Select | None]] = []
        stack: list[tuple[exp.Expr, exp.Select | None]] = [(tree, None)]
        while stack:
            node, select = stack.pop()
            nodes.append((node, select))
            if isinstance(node, exp.Select):
                self._outer[id(node)] = select
                select = node
            stack += [(part, select) for part in _parts(node)]
        return reversed(nodes)

    def infer(self, node: exp.Expr, select: exp.Select | None) -> None:
        """Set the type of a node whose parts are typed already; UNKNOWN if it must be bound."""
        node.type = self._inferred(node, select)
        timestamp_digits.note_precision(node)

    def of(self, node: exp.Expr) -> exp.DataType:
        """The type of a node in the tree, which DuckDB binds if it was not inferred."""
        kind = node.type
        if kind is not None and _is_known(kind):
            return kind
        bound = _UNKNOWN
        if not _in_lambda(node):
            probed = type_probe.types(node, [node], self._relations)
            bound = _UNKNOWN if probed is None else _of_duckdb(probed[0])
        node.type = bound
        return bound

    def _inferred(self, node: exp.Expr, select: exp.Select | None) -> exp.DataType:
        kind = type(node)
        if kind in _RETURNS:
            return _RETURNS[kind]
        if isinstance(node, exp.Column):
            return self._column(node, select)
        rules = (_RULES[each] for each in kind.__mro__ if each in _RULES)
        return next(rules, _unknown)(node)

    def _column(self, column: exp.Column, select: exp.Select | None) -> exp.DataType:
        if not column.table:
            items = () if select is None else select.expressions
            aliased = (item for item in items if isinstance(item, exp.Alias))
            return next((_of(alias) for alias in aliased if alias.alias == column.name), _UNKNOWN)
        while select is not None:
            source = self._visible(select).get(column.table)
            if source is not None:
                return self._source_column(source, column.name)
            select = self._outer[id(select)]
        return _UNKNOWN

    def _visible(self, select: exp.Select) -> dict[str, exp.Expr]:
        """The tables and subqueries in a SELECT's FROM, by alias."""
        if id(select) not in self._sources:
            parts = [*sources(select), *(select.args.get("laterals") or [])]
            self._sources[id(select)] = {part.alias_or_name: part for part in parts}
        return self._sources[id(select)]

    def _source_column(self, source: exp.Expr, name: str) -> exp.DataType:
        key = id(source), name
        if key not in self._columns:
            self._columns[key] = self._of_source(source, name)
        return self._columns[key]

    def _of_source(self, source: exp.Expr, name: str) -> exp.DataType:
        names = source.alias_column_names
        if isinstance(source, exp.Table):
            cte = cte_of(source)
            if cte is not None:
                return _named_output(cte.this, names or cte.alias_column_names, name)
            kind = self._relations.get(source.name, {}).get(name)
            if kind is None or names:
                return _UNKNOWN
            return self._declared.get(source.name, {}).get(name) or _parsed(kind)
        if isinstance(source, exp.Subquery):
            return _named_output(source.this, names, name)
        if isinstance(source, exp.Unnest) and names[:1] == [name]:
            element = _element(_of(source.expressions[0]))
            return _UNKNOWN if element.is_type(exp.DType.STRUCT) else element
        if isinstance(source, exp.Values) and name in names:
            index = names.index(name)
            rows = [row.expressions[index : index + 1] for row in source.expressions]
            return _common([_of(value[0]) for value in rows if value])
        return _UNKNOWN


def _parts(node: exp.Expr) -> list[exp.Expr]:
    """A node's parts; those come first on whose types the others depend."""
    parts = [part for part in node.iter_expressions() if not isinstance(part, exp.DataType)]
    first = _FIRST_PARTS if isinstance(node, exp.Select) else ("with_", "this")
    places = {name: place for place, name in enumerate(first)}
    return sorted(parts, key=lambda part: places.get(part.arg_key or "", len(first)))


def _is_known(kind: exp.DataType) -> bool:
    return not kind.is_type(exp.DType.UNKNOWN)


def _of(node: exp.Expr | None) -> exp.DataType:
    return _UNKNOWN if node is None or node.type is None else node.type


def _unknown(_: object) -> exp.DataType:
    return _UNKNOWN


def _common_of(*nodes: exp.Expr | None) -> exp.DataType:
    """As `_common`, of the types of nodes; those that are None do not count."""
    return _common([_of(node) for node in nodes if node is not None])


def _literal(node: exp.Literal) -> exp.DataType:
    if node.is_string:
        return _VARCHAR
    if node.name.isdigit():
        value = int(node.name)
        return _INT if value < 2**31 else _BIGINT if value < 2**63 else _UNKNOWN
    return _DOUBLE if "e" in node.name.lower() else _DECIMAL


def _arithmetic(node: exp.Expr) -> exp.DataType:
    if isinstance(node, exp.Add | exp.Sub) and intervals.units(node):
        return _INTERVAL
    one, two = _of(node.this), _of(node.expression)
    numbers = all(kind.is_type(*exp.DataType.NUMERIC_TYPES) for kind in (one, two))
    return _common([one, two]) if numbers else _UNKNOWN


def _common(kinds: Sequence[exp.DataType]) -> exp.DataType:
    """The type to which DuckDB converts values of all these; UNKNOWN if it is not certain."""
    some = [kind for kind in kinds if kind.this != exp.DType.NULL]
    if not some:
        return _NULL if kinds else _UNKNOWN
    bases = {kind.this for kind in some}
    if all(kind == some[0] for kind in some):
        return some[0]
    if len(bases) == 1:
        nested = some[0].args.get("nested")
        return _UNKNOWN if nested else timestamp_digits.common_type(some)
    if bases <= _TEXTS:
        return _VARCHAR
    if bases <= _EXACT:
        whole = [kind for kind in _INTEGERS if kind.this in bases]
        return _DECIMAL if exp.DType.DECIMAL in bases else whole[-1]
    return _DOUBLE if bases <= {*_EXACT, exp.DType.DOUBLE} else _UNKNOWN


def _element(kind: exp.DataType) -> exp.DataType:
    """The type of an array's elements or a map's values."""
    is_nested = kind.is_type(exp.DType.ARRAY, exp.DType.LIST, exp.DType.MAP) and kind.expressions
    element = kind.expressions[-1] if is_nested else None
    return element if isinstance(element, exp.DataType) else _UNKNOWN


def _field(kind: exp.DataType, name: str) -> exp.DataType:
    """The type of a field of a row."""
    fields = kind.expressions if kind.is_type(exp.DType.STRUCT) else []
    kinds = (
        field.kind for field in fields if isinstance(field, exp.ColumnDef) and field.name == name
    )
    return next((part for part in kinds if isinstance(part, exp.DataType)), _UNKNOWN)


def _of_side(kind: exp.DataType, side: int) -> exp.DataType:
    """The type of the array of a map's keys (0) or values (1)."""
    sides = kind.expressions if kind.is_type(exp.DType.MAP) else []
    return _nested(exp.DType.ARRAY, sides[side]) if sides else _UNKNOWN


def _of_entries(kind: exp.DataType) -> exp.DataType:
    if not (kind.is_type(exp.DType.MAP) and kind.expressions):
        return _UNKNOWN
    key, value = (side.sql("duckdb") for side in kind.expressions)
    return _parsed(f"STRUCT(key {key}, value {value})[]")


def _named_output(query: exp.Expr, names: Sequence[str], name: str) -> exp.DataType:
    """The type of a query's output column; `names`, if any, replace those of its projections."""
    inner = query.unnest()
    if not isinstance(inner, exp.Query):
        return _UNKNOWN
    output = list(names) or [item.alias_or_name for item in inner.selects]
    return _output(inner, output.index(name)) if name in output else _UNKNOWN


def _output(query: exp.Expr, index: int) -> exp.DataType:
    """The type of a query's output column by its index; in a set operation both sides count."""
    inner = query.unnest()
    if isinstance(inner, exp.SetOperation):
        return _common([_output(side, index) for side in (inner.this, inner.expression)])
    items = inner.selects if isinstance(inner, exp.Select) else []
    return _of(items[index]) if index < len(items) else _UNKNOWN


def output_types(query: exp.Expr) -> list[exp.DataType]:
    """The types of a query's output columns whose parts are typed."""
    inner = query.unnest()
    count = len(inner.selects) if isinstance(inner, exp.Query) else 0
    return [_output(query, index) for index in range(count)]


_CALLS: Mapping[str, Callable[[list[exp.DataType]], exp.DataType]] = {
    **dict.fromkeys(("LIST_EXTRACT", "LIST_MAX", "LIST_MIN"), lambda kinds: _element(kinds[0])),
    **dict.fromkeys(
        ("ARRAY_SLICE", "LIST_APPEND", "LIST_CONCAT", "LIST_FILTER", "LIST_REVERSE", "LIST_SORT"),
        lambda kinds: kinds[0],
    ),
    "DATE_TRUNC": lambda kinds: kinds[1] if kinds[1].is_type(exp.DType.TIMESTAMPNTZ) else _UNKNOWN,
    "ERROR": lambda _: _NULL,
    "LIST_PREPEND": lambda kinds: kinds[1],
    "MAP": lambda kinds: _of_known(exp.DType.MAP, *map(_element, kinds)),
    "MAP_ENTRIES": lambda kinds: _of_entries(kinds[0]),
    "MAP_KEYS": lambda kinds: _of_side(kinds[0], 0),
    "MAP_VALUES": lambda kinds: _of_side(kinds[0], -1),
}
"""The types of DuckDB functions that return a part of an argument, or its type, by its types."""
_RULES: Mapping[type, Callable[[Any], exp.DataType]] = {
    **dict.fromkeys(_OF_ARGUMENT, lambda node: _of(node.this)),
    **dict.fromkeys((exp.Connector, exp.Predicate), lambda _: _BOOLEAN),
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    **dict.fromkeys(
        (exp.Case, exp.Coalesce, exp.Greatest, exp.Least), lambda node: _common_of(*results(node))
    ),
    **dict.fromkeys(
        (exp.Lag, exp.Lead), lambda node: _common_of(node.this, node.args.get("default"))
    ),
    exp.Anonymous: lambda node: _CALLS.get(node.name, _unknown)(list(map(_of, node.expressions))),
    exp.Array: lambda node: _of_known(exp.DType.ARRAY, _common_of(*node.expressions)),
    exp.ArrayAgg: lambda node: _of_known(exp.DType.ARRAY, _of(node.this)),
    exp.Bracket: lambda node: _element(_of(node.this)),
    exp.Cast: lambda node: node.to,
    exp.Dot: lambda node: _field(_of(node.this), node.name),
    exp.Literal: _literal,
    exp.Map: lambda node: _of_known(
        exp.DType.MAP, *(_element(_of(node.args[side])) for side in ("keys", "values"))
    ),
    exp.Subquery: lambda node: _output(node.this, 0),
    exp.Substring: lambda node: _VARCHAR if _of(node.this).is_type(*_TEXTS) else _UNKNOWN,
    exp.Sum: lambda node: _of(node.this) if _of(node.this).is_type(*_SUMMED) else _UNKNOWN,
}
"""The types of nodes from those of their parts, by the classes of the nodes."""


def _in_lambda(node: exp.Expr) -> bool:
    """Whether an expression has a parameter of a lambda, which no query around it has."""
    return any(part.name.startswith('"') for part in node.find_all(exp.Var))
