"""Lowers Flink expressions to DuckDB's; operand types decide what `/` and CAST become."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from streamhouse.errors import SqlError, UnsupportedSqlError
from streamhouse.sql.expressions import (
    aggregates,
    casts,
    comparisons,
    intervals,
    nested_values,
    numbers,
    timestamp_digits,
    type_probe,
    udf_conversion,
    zones,
)
from streamhouse.sql.expressions.binder import Relations
from streamhouse.sql.expressions.operand_types import OperandTypes, output_types
from streamhouse.sql.expressions.timestamp_digits import Declared
from streamhouse.sql.functions import json, texts, times
from streamhouse.sql.functions.expression_builders import (
    AS_IS,
    CLOSING_TIME,
    CURRENT_WATERMARK,
    GENERATED,
    LAST_MOMENT,
    SLICE_START,
    SUMMAND,
    WINDOW_TIMES,
    WINDOWED_TIME,
    WITHIN,
    ArgumentError,
    call,
    cast,
    current_time_name,
    instant,
    number,
    to_local,
    zone_marked,
)
from streamhouse.sql.functions.macros import filled
from streamhouse.sql.text import Script, place

_INTS = exp.DataType.INTEGER_TYPES
_REALS = (exp.DType.FLOAT, exp.DType.DOUBLE)
_NUMBERS = (*_INTS, *_REALS, exp.DType.DECIMAL)
_BINDS_NO_OPERAND = (exp.DType.BOOLEAN, *_REALS)
"""Types whose CAST is the same for every operand."""
_NEVER_REAL = (
    exp.DType.BOOLEAN, exp.DType.DATE, exp.DType.TIME, *times.TIMESTAMPS, *exp.DataType.TEXT_TYPES
)  # fmt: skip
_DIVISION = "the type of this division is unknown; CAST its operands"
_NOT_FINITE = (
    "Infinity or NaN in a sum over rows that change: nothing could subtract it from the sum again"
)
_TYPE = "the type of this expression is unknown here; use TYPEOF of a column or a CAST"
_FIELDS = "name a column for each field of these rows: UNNEST(…) AS t (a, b)"
_SIDES = "a column is a TIMESTAMP on one side and a TIMESTAMP_LTZ on the other; CAST one of them"
_AGGREGATE = "the type of this aggregate's argument is unknown; CAST it"


def _rewrite(tree: exp.Expr, rule: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """Apply a rule to every node, children before parents."""
    for node in reversed(list(tree.walk(bfs=False))):
        new = rule(node)
        if new is not node:
            if new.type is None:
                new.type = node.type
            if node is tree:
                tree = new
            else:
                node.replace(new)
    return tree


def simplify(script: Script, tree: exp.Expr) -> exp.Expr:
    """Rewrite Flink's special syntax (EXTRACT, FLOOR … TO, SIMILAR TO, …) to calls; needs no types.

    Raises `SqlError` or `UnsupportedSqlError` for arguments that a function does not take.
    """

    def rule(node: exp.Expr) -> exp.Expr:
        try:
            new = _simplified(script, node)
        except ArgumentError as failure:
            kind = UnsupportedSqlError if failure.unsupported else SqlError
            raise script.error_at(node, str(failure), kind) from None
        if new is not node:
            new.meta.update(place(node))
        return new

    return _rewrite(tree, rule)


def _simplified(script: Script, node: exp.Expr) -> exp.Expr:
    match node:
        case exp.Extract():
            return times.extract(node)
        case exp.Floor() | exp.Ceil() if node.args.get("to"):
            return times.rounded(node)
        case exp.Escape(this=exp.SimilarTo()):
            return texts.similar(node.this, node.expression.name)
        case exp.SimilarTo() if not isinstance(node.parent, exp.Escape):
            return texts.similar(node)
        case exp.Is(expression=exp.JSON()):
            return json.is_json(node.this, str(node.expression.this or ""))
        case exp.Add() if intervals.units(node.left) and not intervals.units(node.right):
            # The other rules need the timestamp first.
            return exp.Add(this=node.right, expression=node.left)
        case exp.Overlaps():
            return times.overlaps(node)
        case exp.Bracket():
            # Flink counts from 1, as DuckDB does.
            node.set("offset", 1)
        case exp.HexString():
            return _bytes(node.name)
        case exp.Anonymous():
            return udf_conversion.with_result_type(script, node)
        case exp.Fetch() if node.args.get("count") is None:
            node.set("count", number(1))
    return node


def _bytes(digits: str) -> exp.Expr:
    """The bytes of X'…'."""
    escaped = "".join(f"\\x{digits[index : index + 2]}" for index in range(0, len(digits), 2))
    return cast(exp.Literal.string(escaped), "BLOB")


def fix_current_times(tree: exp.Expr, bounded: bool, zone: str = zones.UTC) -> exp.Expr:
    """Replace PROCTIME(), CURRENT_TIMESTAMP and the like by the DuckDB variable `now`.

    So a repeated batch has the same time. With `bounded`, the clock is the default if the variable
    is not set. Dates and local times are those of the zone.
    """
    variable = "GETVARIABLE('now')::TIMESTAMP"
    now = filled(f"COALESCE({variable}, NOW()::TIMESTAMP)" if bounded else variable)
    now = times.in_millis(now)
    local = now if zone == zones.UTC else times.in_millis(to_local(now.copy()))

    def rule(node: exp.Expr) -> exp.Expr:
        name = current_time_name(node)
        if name is None or (name == "WATERMARK" and not bounded):
            return node
        if name == "WATERMARK":
            # The only watermark of a bounded query comes after its last row.
            return exp.Anonymous(this=LAST_MOMENT, expressions=[exp.Null(), *node.expressions])
        if name == "LOCALTIME":
            return casts.truncated_time(local.copy(), 0)
        if name == "CURRENT_DATE":
            return cast(local.copy(), "DATE")
        if name == "LOCALTIMESTAMP":
            return local.copy()
        return now.copy() if zone == zones.UTC else instant(now.copy())

    return _rewrite(tree, rule)


def lower(
    script: Script,
    tree: exp.Expr,
    relations: Relations,
    bounded: bool,
    declared: Declared = timestamp_digits.NONE,
    zone: str = zones.UTC,
) -> exp.Expr:
    """Translate a query to DuckDB's terms; every column must be qualified.

    `declared` has the types of columns with times, with their precisions; `zone` is the time zone
    of the session. Raises `UnsupportedSqlError` where the meaning depends on a type that is
    unknown.
    """
    tree = zones.prepared(fix_current_times(tree, bounded, zone), zone)
    types = OperandTypes(relations, declared)
    translation = _Translation(script, relations, types, zone != zones.UTC)
    for node, select in types.inner_first(tree):
        types.infer(node, select)
        new = translation.of(node)
        if new is node:
            continue
        if new.type is None:
            new.type = new.to if isinstance(new, exp.Cast) else node.type
        timestamp_digits.note_precision(new)
        if node is tree:
            tree = new
        else:
            node.replace(new)
    return udf_conversion.converted(script, zones.in_zone(tree, zone), relations)


@dataclass(frozen=True)
class _Translation:
    """Translates one node after another, inner ones first; `zoned`: in a zone that is not UTC."""

    script: Script
    relations: Relations
    types: OperandTypes
    zoned: bool = False

    def of(self, node: exp.Expr) -> exp.Expr:
        """The translation of a node whose parts are translated; the node itself if it stays."""
        comparisons.check_grouped(self.script, node)
        if isinstance(node, exp.EQ | exp.NEQ | exp.In | exp.NullSafeEQ | exp.NullSafeNEQ):
            comparisons.with_sorted_maps(self.script, node)
        if isinstance(node, exp.Cast):
            return self._cast(node)
        if isinstance(node, exp.Binary) and type(node) in _ARITHMETIC:
            return self._arithmetic(node)
        if isinstance(node, exp.Typeof):
            precision = timestamp_digits.declared_precision(node.this)
            return self._typed(node, type_probe.type_name(node, self.relations, precision), _TYPE)
        if isinstance(node, exp.DPipe | exp.Lower | exp.Trim | exp.Upper):
            if isinstance(node, exp.Trim) and node.args.get("expression") is None:
                node.set("expression", exp.Literal.string(" "))
            return self._with_texts(node)
        if isinstance(node, exp.StrPosition | exp.Substring):
            # sqlglot's generator needs the type.
            self.types.of(node.this)
            if isinstance(node, exp.Substring):
                return _substring_from_one(node)
            return cast(node.copy(), "INT")
        if self.zoned:
            self._unify_times(node)
            if isinstance(node, exp.SetOperation):
                self._check_sides(node)
        if isinstance(node, exp.Case) and node.this is not None:
            comparisons.check(self.script, [node.this, *(b.this for b in node.args["ifs"])])
        if isinstance(node, exp.Array | exp.Case | exp.Coalesce | exp.Greatest | exp.Least):
            is_array = isinstance(node, exp.Array)
            values = node.expressions if is_array else timestamp_digits.results(node)
            if not any(value.is_type(*_NEVER_REAL) for value in values):
                self._adapt(values)
            return node
        if isinstance(node, exp.Round):
            is_double = self._is(node.this, exp.DType.DOUBLE)
            return numbers.rounded(node) if is_double else node
        if isinstance(node, exp.Anonymous) and node.name == SUMMAND:
            return self._summand(node.expressions[0])
        if isinstance(node, exp.Anonymous) and node.name in WINDOW_TIMES:
            return self._windowed(node)
        if isinstance(node, exp.Anonymous) and node.name == CURRENT_WATERMARK:
            at = call("MAKE_TIMESTAMP_MS", call("GETVARIABLE", exp.Literal.string("watermark")))
            return self._moment(at, self.types.of(node.expressions[0]), AS_IS)
        if isinstance(node, exp.Anonymous) and node.name == "TRUNC" and len(node.expressions) == 2:
            is_double = self._is(node.expressions[0], exp.DType.DOUBLE)
            return numbers.truncated(node) if is_double else node
        if isinstance(node, exp.Floor | exp.Ceil) and self._is(node.this, *_INTS):
            whole: exp.Expr = node.this
            return whole
        if isinstance(node, exp.Anonymous) and node.name == "TO_JSON":
            (value,) = node.expressions
            kind = self.types.of(value)
            differs = nested_values.differs_in_json(kind, casts.OTHER_JSON)
            if not differs:
                return node
            return nested_values.written(value, nested_values.JSON, casts.json_scalar) or node
        if isinstance(node, comparisons.OPERATORS) and not isinstance(node.parent, exp.Join):
            return self._comparison(node)
        if isinstance(node, exp.In | exp.NullSafeEQ | exp.NullSafeNEQ | exp.Between):
            comparisons.check(self.script, comparisons.operands(node))
            return comparisons.without_nan(node) if isinstance(node, exp.In) else node
        if isinstance(node, exp.Map):
            return _with_last_keys(node)
        if isinstance(node, exp.Bracket) and self._is(node.this, exp.DType.ARRAY, exp.DType.LIST):
            return _index_from_one(node)
        if isinstance(node, exp.Unnest) and isinstance(node.parent, exp.From | exp.Join):
            found = nested_values.unnested(node, self.types.of(node.expressions[0]))
            return self._typed(node, found, _FIELDS)
        if isinstance(node, exp.Where | exp.Having | exp.Join):
            self._check_condition(node.args.get("on") if isinstance(node, exp.Join) else node.this)
            return node
        if not aggregates.is_complete(node):
            return node
        return self._typed(node, aggregates.translated(node, self.relations), _AGGREGATE)

    def _is(self, node: exp.Expr, *kinds: exp.DType) -> bool:
        return self.types.of(node).this in kinds

    def _typed(self, node: exp.Expr, new: exp.Expr | None, message: str) -> exp.Expr:
        """`new`, or an error if there is none since a type is unknown."""
        if new is None:
            raise self.script.unsupported(node, message)
        return new

    def _cast(self, node: exp.Cast) -> exp.Expr:
        if not node.meta.get(GENERATED):
            if not node.to.is_type(*_BINDS_NO_OPERAND):
                self._bind(node.this)
            if node.this.type is not None and not casts.is_allowed(node.this.type, node.to):
                kinds = f"{node.this.type.sql('duckdb')} to {node.to.sql('duckdb')}"
                message = f"a cast from {kinds} is not allowed; convert the value by a function"
                raise self.script.error_at(node, message)
            return casts.converted(node)
        if node.to.is_type(exp.DType.DATE, *times.TIMESTAMPS):
            kind = self.types.of(node.this)
            times.note_type(node, kind)
            zones.mark(node, kind)
        elif self.zoned and node.to.is_type(exp.DType.TIME):
            zones.mark(node, self.types.of(node.this))
        return times.with_flink_type(times.of_text(casts.to_timestamp(node)), self.zoned)

    def _check_sides(self, node: exp.SetOperation) -> None:
        """Raise `SqlError` if a column has instants on one side and local times on the other."""
        for kinds in zip(output_types(node.this), output_types(node.expression), strict=False):
            if sum(kind.is_type(*zones.INSTANTS) for kind in kinds) == 1:
                if any(kind.is_type(*zones.LOCALS) for kind in kinds):
                    raise self.script.error_at(node, _SIDES)

    def _unify_times(self, node: exp.Expr) -> None:
        """Cast operands that are local times or texts to instants, if another one is an instant."""
        for values in _unified(node):
            if not any(value.is_type(*_NEVER_REAL) for value in values):
                continue
            for value in values if any(self._is(each, *zones.INSTANTS) for each in values) else ():
                if self._is(value, *zones.LOCALS, *exp.DataType.TEXT_TYPES):
                    moment = cast(value.copy(), "TIMESTAMPTZ")
                    zones.mark(moment, value.type)
                    moment.type = moment.to
                    value.replace(moment)

    def _summand(self, value: exp.Expr) -> exp.Expr:
        """A value that can be negated, and subtracted from a sum to which it was added."""
        if self._is(value, *_INTS):
            wide = cast(value.copy(), "HUGEINT")
            wide.meta[SUMMAND] = True
            return wide
        new: exp.Expr = exp.Paren(this=value.copy())
        if self._is(value, *_REALS):
            new = filled(
                f"CASE WHEN ISFINITE(x::DOUBLE) IS FALSE THEN ERROR('{_NOT_FINITE}') ELSE x END",
                x=value.copy(),
            )
        new.type = value.type
        return new

    def _windowed(self, node: exp.Anonymous) -> exp.Expr:
        """The time of a row as a TIMESTAMP, or the last moment of its window in the time's type."""
        value, time = node.expressions[0], node.expressions[-1]
        kind = self.types.of(time)
        if not kind.is_type(*times.TIMESTAMPS):
            message = (
                f"windows take a time of type TIMESTAMP or TIMESTAMP_LTZ, and '{time.name}' is "
                f"{kind.sql('duckdb')}; CAST it in a subquery"
            )
            raise self.script.error_at(time, message)
        if node.name == WINDOWED_TIME:
            moment = value.copy()
            moment.type = kind
            local = cast(moment, "TIMESTAMP")
            zones.mark(local, kind)
            return casts.to_timestamp(local)
        zoned = kind.is_type(*zones.INSTANTS)
        if node.name == WITHIN:
            both = zoned and self.zoned
            return exp.and_(*node.expressions[: 2 if both else 1], copy=False, wrap=False)
        if node.name == CLOSING_TIME:
            if not (zoned and self.zoned):
                return cast(time.copy(), "TIMESTAMP")
            before = call("TO_MILLISECONDS", number(1))
            last = cast(exp.Paren(this=exp.Sub(this=value.copy(), expression=before)), "TIMESTAMP")
            last.type = last.to
            return last
        # A zone may skip the start of a slice, so that it is no instant.
        zoned = zoned and not (self.zoned and node.name == SLICE_START)
        return self._moment(value.copy(), kind if zoned else exp.DataType(this=exp.DType.TIMESTAMP))

    def _moment(self, value: exp.Expr, kind: exp.DataType, zone: str = "") -> exp.Expr:
        """A TIMESTAMP as a time of a type, with three digits; `zone`: what it is, if not local."""
        moment = cast(value, "TIMESTAMPTZ" if kind.is_type(*zones.INSTANTS) else "TIMESTAMP_MS")
        if zone:
            zone_marked(moment, zone)
        zones.mark(moment, exp.DataType(this=exp.DType.TIMESTAMP))
        timestamp_digits.mark(moment, 3)
        moment.type = moment.to
        return moment

    def _bind(self, operand: exp.Expr) -> None:
        """Set the type of a cast's operand; for ROW(…) those of its fields, too."""
        self.types.of(operand)
        if nested_values.is_row(operand):
            for field in operand.expressions:
                self._bind(field)

    def _with_texts(self, node: exp.Expr) -> exp.Expr:
        """Cast operands that are numbers, times or BOOLEAN to texts, as CAST does."""
        for value in (node.this, node.args.get("expression")):
            if value is not None and self._is(value, *_NUMBERS, *_NEVER_REAL):
                if not value.is_type(*exp.DataType.TEXT_TYPES):
                    text = exp.Cast(to=exp.DataType(this=exp.DType.VARCHAR))
                    value.replace(text)
                    text.set("this", value)
                    text.replace(casts.converted(text))
        if isinstance(node, exp.Lower | exp.Upper):
            return texts.in_case(node, numbers.is_repeatable(node.this))
        return node

    def _arithmetic(self, node: exp.Binary) -> exp.Expr:
        for side in (node.left, node.right):
            if side.is_type(*exp.DataType.TEXT_TYPES):
                sign = _ARITHMETIC[type(node)]
                raise self.script.error_at(
                    node, f"'{sign}' does not take a string; CAST it to a number"
                )
        self._adapt([node.left, node.right])
        if isinstance(node, exp.Div):
            return self._division(node)
        if not isinstance(node, exp.Add | exp.Sub):
            return node
        for side, step in ((node.left, node.right), (node.right, node.left)):
            if intervals.units(step) and not intervals.units(side):
                return _stepped(node, self.types.of(side), step)
        return node

    def _adapt(self, values: Sequence[exp.Expr]) -> None:
        """Cast operands where Flink's common type is wider than DuckDB's.

        An integer literal is an INT; for DuckDB it has the type of the other operand. The common
        type of FLOAT and DECIMAL is DOUBLE; for DuckDB it is FLOAT.
        """
        others = [value for value in values if not _is_whole_literal(value)]
        for value in others:
            if isinstance(value.unnest(), _OF_ANY_TYPE):
                self.types.of(value)
        if others and all(value.is_type(exp.DType.TINYINT, exp.DType.SMALLINT) for value in others):
            for value in values:
                if _is_whole_literal(value):
                    _replace_by_cast(value, "INT")
        _widen_floats(values)

    def _division(self, node: exp.Div) -> exp.Expr:
        if node.left.is_type(*_INTS) and node.right.is_type(*_INTS):
            new = exp.IntDiv(this=_wrap(node.left), expression=_wrap(node.right))
            # `//` and `/` differ in operator precedence.
            return exp.Paren(this=new)
        for side in (node.left, node.right):
            side.replace(_wrap(side.copy()))
        node.set("typed", False)
        node.set("safe", False)
        return self._typed(node, numbers.divided(node, self.relations), _DIVISION)

    def _comparison(self, node: exp.Binary) -> exp.Expr:
        comparisons.check(self.script, [node.left, node.right])
        sides = (node.left, node.right)
        if not any(side.is_type(*_NEVER_REAL) for side in sides):
            for side in sides:
                self.types.of(side)
            _widen_floats(sides)
        return comparisons.without_nan(node)

    def _check_condition(self, condition: exp.Expr | None) -> None:
        """Raise `SqlError` for a number or string as condition, which DuckDB would accept."""
        if condition is not None and self._is(condition, *_NUMBERS, *exp.DataType.TEXT_TYPES):
            raise self.script.error_at(
                condition, "a condition must be BOOLEAN; compare it with a value"
            )


def _unified(node: exp.Expr) -> list[list[exp.Expr]]:
    """The operands of a node that get one type."""
    if isinstance(node, exp.Values):
        rows = [row.expressions for row in node.expressions if isinstance(row, exp.Tuple)]
        return [list(column) for column in zip(*rows, strict=False)]
    if isinstance(node, exp.Case | exp.Coalesce | exp.Greatest | exp.Least):
        return [timestamp_digits.results(node)]
    if isinstance(node, exp.In | exp.Between | exp.NullSafeEQ | exp.NullSafeNEQ):
        return [comparisons.operands(node)]
    if isinstance(node, exp.Array):
        return [node.expressions]
    return [[node.left, node.right]] if isinstance(node, comparisons.OPERATORS) else []


_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}


def _stepped(node: exp.Add | exp.Sub, kind: exp.DataType, step: exp.Expr) -> exp.Expr:
    """A DATE, TIME or TIMESTAMP ± an interval, with Flink's type.

    A DATE ± whole days, months or years is a DATE; in DuckDB it is a TIMESTAMP.
    """
    if kind.this == exp.DType.DATE and intervals.is_whole_days(step):
        return times.as_date(node)
    if kind.this in (exp.DType.TIME, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMP_NS):
        node.type = kind
    elif kind.this == exp.DType.DATE or kind.this in times.TIMESTAMPS:
        node.type = exp.DataType.build("TIMESTAMP", dialect="duckdb")
    return node


def _substring_from_one(node: exp.Substring) -> exp.Expr:
    """Make SUBSTRING from position 0 start at position 1, as in Flink.

    A start before the text gives the empty text, a negative length null.
    """
    start, length, one = node.args.get("start"), node.args.get("length"), number(1)
    ifs = []
    if length is not None and not isinstance(length, exp.Literal):
        ifs.append("WHEN n < 0 THEN NULL")
    if isinstance(start, exp.Literal):
        if start.name == "0":
            node.set("start", one)
    elif start is not None:
        if node.this.is_type(*exp.DataType.TEXT_TYPES):
            ifs.append("WHEN m + LENGTH(s) < 0 THEN ''")
        if not isinstance(start, exp.Neg):
            from_one = filled("CASE WHEN m = 0 THEN 1 ELSE m END", m=start.copy())
            node.set("start", from_one)
    parts = {"s": node.this.copy(), "m": start or one, "n": length or one}
    parts = {name: part.copy() for name, part in parts.items()}
    cases = f"CASE {' '.join(ifs)} ELSE part END"
    return filled(cases, part=node.copy(), **parts) if ifs else node


def _index_from_one(node: exp.Bracket) -> exp.Expr:
    """Make an array index below 1 give NULL; DuckDB counts negative ones from the end."""
    (index,) = node.expressions
    if isinstance(index, exp.Literal):
        return node
    return filled("CASE WHEN n > 0 THEN element END", n=index.copy(), element=node.copy())


def _with_last_keys(node: exp.Map) -> exp.Expr:
    """Of equal keys of MAP[…] the last one counts."""
    keys = node.args["keys"].expressions
    literals = {(key.is_string, key.name) for key in keys if isinstance(key, exp.Literal)}
    if len(keys) < 2 or len(literals) == len(keys):
        return node
    parts = {"names": node.args["keys"], "items": node.args["values"]}
    return filled("_MAP_OF_LAST(names, items)", **parts)


_OF_ANY_TYPE = (exp.Bracket, exp.Case, exp.Coalesce, exp.Column, exp.Dot, exp.Subquery)


def _is_whole_literal(node: exp.Expr) -> bool:
    inner = node.unnest()
    inner = inner.this.unnest() if isinstance(inner, exp.Neg) else inner
    return isinstance(inner, exp.Literal) and not inner.is_string and inner.name.isdigit()


def _widen_floats(values: Sequence[exp.Expr]) -> None:
    """Cast values to DOUBLE if some are FLOAT and others DECIMAL, as Flink does."""
    kinds = {value.type.this for value in values if value.type is not None}
    if {exp.DType.FLOAT, exp.DType.DECIMAL} <= kinds:
        for value in values:
            if not value.is_type(exp.DType.NULL):
                _replace_by_cast(value, "DOUBLE")


def _replace_by_cast(node: exp.Expr, kind: str) -> None:
    new = cast(node.copy(), kind)
    new.type = new.to
    node.replace(new)


def _wrap(node: exp.Expr) -> exp.Expr:
    return exp.Paren(this=node) if isinstance(node, exp.Binary) else node
