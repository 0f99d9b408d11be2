"""MATCH_RECOGNIZE as plain SQL: rows of a table in which a pattern is found, and what they measure.

Rows are numbered in each partition. A function finds the matches in the list of a partition's rows
(`functions.row_patterns`), and measures are aggregates over the rows of each match, or window
functions if each row is returned. Conditions that depend on the rows before, as they were matched,
are aggregates over those, too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from streamhouse.sql.functions import supported
from streamhouse.sql.functions.expression_builders import (
    GENERATED,
    ArgumentError,
    call,
    cast,
    column_of,
    number,
    quoted,
)  # fmt: skip
from streamhouse.sql.functions.row_patterns import (
    ALIAS,
    DECIDED,
    FUNCTION,
    IS,
    NUMBER,
    PLACE,
    REQUEST,
    ROWS,
    TIME,
    VARIABLE,
    Program,
)  # fmt: skip
from streamhouse.sql.select_parts import derived, over, relation, rows_of
from streamhouse.sql.text import Script

MATCHED = "matched"
"""Key in the `meta` of a SELECT that finds matches: the columns that divide its rows."""
IN_TIME = "in_time"
"""Key in the `meta` of such a SELECT: the column of time in whose order its rows are, if any."""
INPUT = "match$input"
"""The first WITH query of such a SELECT, of which it reads each partition on its own."""
_ROW, _FOUND, _PARTITION, _OTHER = ALIAS, "_f", "_p", "_o"
_MATCHES, _MOVED = "match$found", "match$moved"
_NAMES = (
    "FIRST", "LAST", "PREV", "NEXT", "CLASSIFIER", "MATCH_NUMBER", "MATCH_ROWTIME",
    "MATCH_PROCTIME",
)  # fmt: skip
_FRAMES = {"RUNNING": ("CURRENT ROW", None), "FINAL": ("UNBOUNDED", "FOLLOWING")}


class PatternFunction(exp.Expression):
    """A call of a function that only MATCH_RECOGNIZE has; `this` is its name."""

    arg_types = {"this": True, "expressions": False}


def check_calls(script: Script, tree: exp.Expr) -> None:
    """Raise `UnsupportedSqlError` for such a call that is in no MATCH_RECOGNIZE."""
    for call_ in tree.find_all(PatternFunction):
        raise script.unsupported(call_, supported.unknown(call_.name))


def _builder(name: str) -> Callable[[list[exp.Expr]], exp.Expr]:
    return lambda args: PatternFunction(this=name, expressions=args)


PATTERN_FUNCTIONS = {name: _builder(name) for name in _NAMES}
"""Builders of the calls, by name."""


@dataclass(frozen=True)
class Measure:
    """A measure of matches; `frame`: whether it is `RUNNING` or `FINAL`, if rows are returned."""

    name: str
    value: exp.Expr
    frame: str = "RUNNING"


@dataclass(frozen=True)
class Matching:
    """The clauses of MATCH_RECOGNIZE over `data`, an element of FROM.

    `variables` are those of the pattern, each with itself, and those of SUBSET with theirs.
    `all_rows`: each row of a match is returned.
    """

    data: exp.Expr
    keys: Sequence[exp.Column]
    order: Sequence[exp.Ordered]
    measures: Sequence[Measure]
    program: Program
    variables: Mapping[str, Sequence[str]]
    define: Mapping[str, exp.Expr]
    all_rows: bool = False

    def select(self) -> exp.Select:
        """The SELECT of the matches."""
        return _Select(self).made()


@dataclass
class _Values:
    """Translates expressions over variables of a pattern to those over rows.

    `moved` are the values of rows before and after each row that these need, of up to `ahead` rows
    after it.
    """

    clauses: Matching
    moved: list[exp.Expr] = field(default_factory=list)
    ahead: int = 0

    def of_row(self, node: exp.Expr, variable: str) -> exp.Expr | None:
        """A condition of the rows of a variable; None if it depends on the rows matched before."""
        for part in node.find_all(PatternFunction, exp.AggFunc, exp.Column):
            if isinstance(part, exp.Column):
                depends = _variable(part) not in ("", variable)
            else:
                depends = part.name not in ("PREV", "NEXT") or self._nested(part) is not None
            if depends:
                return None
        return self._over_rows(node, moved=True)

    def of_match(self, node: exp.Expr, running: bool, frame: str = "") -> exp.Expr:
        """An expression as an aggregate over the rows of a match.

        `running`: of those that were matched so far, of which a condition is evaluated. `frame`: as
        a window function of each row.
        """
        variable = column_of(_ROW, VARIABLE) if running else _found("variable")

        def framed(aggregate: exp.Expr, names: Sequence[str] = ()) -> exp.Expr:
            if names:
                texts: list[exp.Expr] = [exp.Literal.string(name) for name in names]
                where = exp.Where(this=exp.In(this=variable.copy(), expressions=texts))
                aggregate = exp.Filter(this=aggregate, expression=where)
            if not frame:
                return aggregate
            keys = [*_keys(self.clauses, _ROW), _found(NUMBER)]
            return _window(aggregate, keys, ("UNBOUNDED", "PRECEDING"), _FRAMES[frame])

        def new(part: exp.Expr) -> exp.Expr:
            if isinstance(part, PatternFunction) and part.name == "MATCH_NUMBER" and not running:
                return framed(exp.Max(this=_found(NUMBER)))
            if isinstance(part, PatternFunction | exp.Column):
                value, names, last, place = self._picked(part, variable)
                return call("LIST_EXTRACT", framed(_listed(value, last), names), number(place + 1))
            if isinstance(part, exp.AggFunc):
                return framed(self._over_rows(part), self._variables(part))
            return part

        return node.transform(new)

    def _picked(
        self, part: exp.Expr, variable: exp.Expr
    ) -> tuple[exp.Expr, Sequence[str], bool, int]:
        """The value of one row of a match: of which variables, and its place from first or last."""
        if isinstance(part, exp.Column):
            return self._column(part), self._variables(part), True, 0
        match part.name:
            case "CLASSIFIER":
                return variable.copy(), (), True, 0
            case "MATCH_ROWTIME":
                value = part.expressions[0] if part.expressions else self.clauses.order[0].this
                return self._over_rows(value), (), True, 0
            case "FIRST" | "LAST":
                value, place = self._navigation(part, 0)
                return self._over_rows(value), self._variables(value), part.name == "LAST", place
            case "PREV" | "NEXT":
                inner = self._nested(part)
                last = inner is None or inner.name == "LAST"
                place = 0 if inner is None else self._navigation(inner, 0)[1]
                return (*self._moved_value(part), last, place)
        raise ArgumentError(f"{part.name} is not supported here; name a column of the rows")

    def _navigation(self, node: exp.Expr, places: int) -> tuple[exp.Expr, int]:
        """The arguments of FIRST, LAST, PREV or NEXT: a value, and a number of rows."""
        value, *rest = node.expressions or [None]
        if value is None or len(rest) > 1 or not all(each.is_int for each in rest):
            message = f"{node.name} takes a value, and a number of rows: {node.name}(A.price, 1)"
            raise ArgumentError(message)
        return value, int(rest[0].name) if rest else places

    def _nested(self, node: exp.Expr) -> PatternFunction | None:
        """The FIRST or LAST in a PREV or NEXT."""
        value = node.expressions[0] if node.expressions else None
        return value if isinstance(value, PatternFunction) else None

    def _moved_value(self, node: exp.Expr) -> tuple[exp.Expr, Sequence[str]]:
        """The column of the value of a row before or after each row, and of which variables."""
        value, places = self._navigation(node, 1)
        inner = self._nested(node)
        if inner is not None:
            value = self._navigation(inner, 0)[0]
        side = "PRECEDING" if node.name == "PREV" else "FOLLOWING"
        self.ahead = max(self.ahead, places if node.name == "NEXT" else 0)
        end = (number(places), side)
        # In a RANGE of one row.
        moved = _window(exp.Max(this=self._over_rows(value)), _keys(self.clauses, _ROW), end, end)
        if moved not in self.moved:
            self.moved.append(moved)
        return column_of(_ROW, f"{_MOVED}{self.moved.index(moved)}"), self._variables(value)

    def _variables(self, node: exp.Expr) -> Sequence[str]:
        """The variables whose rows an expression is of; none for all rows."""
        found = {_variable(column) for column in node.find_all(exp.Column)}
        if len(found) > 1:
            listed = ", ".join(sorted(found - {""}))
            raise ArgumentError(
                f"an expression has columns of {listed}; name one variable of the PATTERN in each "
                "function"
            )
        name = next(iter(found), "")
        return self.clauses.variables[name] if name else ()

    def _over_rows(self, node: exp.Expr, moved: bool = False) -> exp.Expr:
        """An expression over columns of one row; `moved`: also of those before and after it."""

        def new(part: exp.Expr) -> exp.Expr:
            if isinstance(part, PatternFunction):
                if moved:
                    return self._moved_value(part)[0]
                raise ArgumentError(f"{part.name} cannot be in another function; write it outside")
            return self._column(part) if isinstance(part, exp.Column) else part

        return node.transform(new)

    def _column(self, column: exp.Column) -> exp.Expr:
        name = _variable(column)
        if name and name not in self.clauses.variables:
            known = ", ".join(self.clauses.variables)
            raise ArgumentError(f"'{name}' is no variable of the PATTERN; it has {known}")
        if isinstance(column.this, exp.Star):
            return column.this.copy()
        if column.args.get("db"):
            return exp.Column(this=column.this.copy(), table=column.args["table"].copy())
        return exp.Column(this=column.this.copy(), table=quoted(_ROW))


class _Select:
    """Makes the SELECT of the matches."""

    def __init__(self, clauses: Matching) -> None:
        self._clauses = clauses
        values = _Values(clauses)
        self._known, self._asked = dict[str, exp.Expr](), dict[str, exp.Expr]()
        for name, condition in clauses.define.items():
            of_row = values.of_row(condition, name)
            if of_row is None:
                self._asked[name] = values.of_match(condition, True)
            else:
                self._known[IS + name] = of_row
        self._measures = [
            exp.alias_(
                values.of_match(each.value, False, each.frame if clauses.all_rows else ""),
                each.name,
                quoted=True,
            )
            for each in clauses.measures
        ]
        self._moved = {f"{_MOVED}{n}": each for n, each in enumerate(values.moved)}
        self._ahead = values.ahead

    def made(self) -> exp.Select:
        """The SELECT, with the queries of its input and of the rows."""
        keys = _keys(self._clauses, _ROW)
        select = exp.Select(expressions=[*keys, *self._measures])
        if self._clauses.all_rows:
            select.append("expressions", self._other_columns())
        else:
            group = [*_keys(self._clauses, _ROW), _found(NUMBER)]
            select.set("group", exp.Group(expressions=group))
        select.set("from_", exp.From(this=derived(self._matches(), _PARTITION)))
        select.set("joins", [*self._joins()])
        queries = ((INPUT, rows_of(self._clauses.data)), (ROWS, self._rows()))
        with_ = [
            exp.CTE(this=query, alias=exp.TableAlias(this=quoted(name))) for name, query in queries
        ]
        select.set("with_", exp.With(expressions=with_))
        select.meta[MATCHED] = [key.name for key in self._clauses.keys]
        first = self._clauses.order[0]
        is_time = isinstance(first.this, exp.Column) and not first.args.get("desc")
        select.meta[IN_TIME] = first.this.name if is_time else ""
        return select

    def _other_columns(self) -> exp.Column:
        """All columns that do not divide the rows."""
        own = [PLACE, TIME, VARIABLE, REQUEST, *self._known, *self._moved]
        names = [*own, *(key.name for key in self._clauses.keys)]
        star = exp.Star(**{"except_": [exp.column(quoted(name)) for name in names]})
        return exp.Column(this=star, table=quoted(_ROW))

    def _rows(self) -> exp.Select:
        """The rows of the table with their places, and what is known of each one."""
        clauses = self._clauses
        terms = [_of_rows(term) for term in clauses.order]
        place = over(exp.RowNumber(), _keys(clauses, _ROW), terms)
        time = call("EPOCH_US", cast(terms[0].this.copy(), "TIMESTAMP"))
        more: dict[str, exp.Expr] = {
            TIME: time if clauses.program.within_us else cast(exp.Null(), "BIGINT"),
            VARIABLE: cast(exp.Literal.string(""), "VARCHAR"),
            REQUEST: cast(number(0), "BIGINT"),
        }
        rows = rows_of(relation(INPUT, _ROW), {PLACE: place})
        for columns in (self._moved, self._known | more):
            rows = rows_of(derived(rows, _ROW), columns) if columns else rows
        return rows

    def _matches(self) -> exp.Select:
        """The places of the rows of matches, in a list for each partition."""
        keys, request = _keys(self._clauses, _ROW), column_of(_ROW, REQUEST)
        texts = [
            _grouped(_struct({"request": request, "is": condition}), [request])
            for condition in self._asked.values()
        ]
        read = dict.fromkeys(each.name for text in texts for each in text.find_all(exp.Column))
        asked = [name for name in read if name not in (REQUEST, PLACE, VARIABLE)]
        times = [TIME] if self._clauses.program.within_us else []
        names = [*asked, *self._known, *times] or [PLACE]
        struct = _struct({name: column_of(_ROW, name) for name in names})
        known = [name.removeprefix(IS) for name in self._known]
        program = replace(
            self._clauses.program, known=known, asked=[*self._asked], ahead=self._ahead
        )
        queries = (exp.Subquery(this=text) for text in texts)
        found = call(FUNCTION, exp.Literal.string(program.text()), _listed(struct), *queries)
        return _grouped(found, keys, keys)

    def _joins(self) -> Iterator[exp.Join]:
        """The places of the matched rows, and these rows."""
        unnest = exp.Unnest(
            expressions=[column_of(_PARTITION, _MATCHES)],
            alias=exp.TableAlias(this=quoted(_FOUND), columns=[quoted(_FOUND)]),
        )
        yield exp.Join(this=unnest, kind="CROSS")
        same = _same_keys([key.name for key in self._clauses.keys], _ROW, _PARTITION)
        place = exp.EQ(this=column_of(_ROW, PLACE), expression=_found("place"))
        yield exp.Join(this=relation(ROWS, _ROW), on=exp.and_(place, *same))


def decide(select: exp.Select, later: Callable[[exp.Expr], exp.Expr]) -> None:
    """Limit a SELECT that is `IN_TIME` to the matches that a `later` row has decided.

    `later` is a condition on the time of a row. A row decides a match if it is the last one on
    which the match depends. Partitions without a later row are not read, and a match that rows to
    come may change is left out.
    """
    keys, time = select.meta[MATCHED], select.meta[IN_TIME]
    rows = select.args["with_"].expressions[1].this
    while isinstance(rows.args["from_"].this, exp.Subquery):
        rows = rows.args["from_"].this.this
    decided = exp.EQ(this=column_of(_OTHER, PLACE), expression=_found(DECIDED))
    for query, name, own, terms in (
        (rows, INPUT, _ROW, ()), (select, ROWS, _PARTITION, (decided,)),
    ):  # fmt: skip
        other = exp.select("1").from_(relation(name, _OTHER))
        same = _same_keys(keys, own, _OTHER)
        other.where(later(column_of(_OTHER, time)), *terms, *same, copy=False)
        query.where(exp.Exists(this=other), copy=False)


def _variable(column: exp.Column) -> str:
    """The variable of a column; empty if it names none."""
    return str(column.text("db") or column.table)


def _found(name: str) -> exp.Expr:
    """A field of the place of a matched row."""
    return call("STRUCT_EXTRACT", column_of(_FOUND, _FOUND), exp.Literal.string(name))


def _keys(clauses: Matching, relation: str) -> list[exp.Column]:
    return [column_of(relation, key.name) for key in clauses.keys]


def _of_rows(node: exp.Ordered) -> exp.Ordered:
    """A term of ORDER BY over the rows."""
    term = node.copy()
    for column in term.find_all(exp.Column):
        column.set("table", quoted(_ROW))
    return term


def _window(
    function: exp.Expr,
    keys: Sequence[exp.Expr],
    start: tuple[exp.Expr | str, str | None],
    end: tuple[exp.Expr | str, str | None],
) -> exp.Window:
    """A function over a RANGE of rows, in the order of their places."""
    spec = exp.WindowSpec(
        kind="RANGE", start=start[0], start_side=start[1], end=end[0], end_side=end[1]
    )
    window = over(function, keys, [exp.Ordered(this=column_of(_ROW, PLACE))])
    window.set("spec", spec.copy())
    return window


def _struct(fields: Mapping[str, exp.Expr]) -> exp.Struct:
    struct = exp.Struct()
    for name, value in fields.items():
        pair = exp.PropertyEQ(this=quoted(name), expression=value)
        pair.meta[GENERATED] = True
        struct.append("expressions", pair)
    return struct


def _listed(value: exp.Expr, last: bool = False) -> exp.ArrayAgg:
    """The values of rows as a list in the order of their places, or the last one first."""
    order = [exp.Ordered(this=column_of(_ROW, PLACE), desc=last)]
    return exp.ArrayAgg(this=exp.Order(this=value, expressions=order))


def _grouped(
    value: exp.Expr, keys: Sequence[exp.Expr], shown: Sequence[exp.Expr] = ()
) -> exp.Select:
    """An aggregate over the groups of the rows."""
    items = [*(each.copy() for each in shown), exp.alias_(value, _MATCHES, quoted=True)]
    group = exp.Group(expressions=[key.copy() for key in keys]) if keys else None
    return exp.Select(expressions=items, from_=exp.From(this=relation(ROWS, _ROW)), group=group)


def _same_keys(names: Sequence[str], left: str, right: str) -> Iterator[exp.Expr]:
    """The conditions that rows of two relations are of one partition."""
    for name in names:
        yield exp.NullSafeEQ(this=column_of(left, name), expression=column_of(right, name))
