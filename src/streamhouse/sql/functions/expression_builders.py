"""Helpers that build function calls: DuckDB calls, casts, and the time of a batch."""

from collections.abc import Callable

from sqlglot import exp

Args = list[exp.Expr]
Build = Callable[[Args], exp.Expr]
Table = dict[str, tuple[int, int | None, Build]]
"""Function names with the least and greatest number of arguments (None: any) and a builder."""

_CURRENT = "__current_"
CURRENT_WATERMARK = f"{_CURRENT}WATERMARK"
"""The placeholder of the watermark of a stream before a batch, in the type of its argument."""

SUMMAND = "__summand"
"""A placeholder: a value of a sum from which it may be subtracted again; also a key of `meta`."""

WINDOWED_TIME, LAST_MOMENT = "__windowed_time", "__last_moment"
SLICE_START, CLOSING_TIME = "__slice_start", "__closing_time"
WITHIN = "__within"
WINDOW_TIMES = (WINDOWED_TIME, LAST_MOMENT, SLICE_START, CLOSING_TIME, WITHIN)
"""Placeholders that `expressions.lowering` translates by the type of a window's time column.

The first one is the TIMESTAMP of the column, local in the session's zone; the second one casts a
local TIMESTAMP to its type. The third one is the start of a slice, which stays a TIMESTAMP in zones
that are not UTC, since they may skip it. The fourth one is the last local moment of a window, by
its end and its time. The last one is the first argument, a comparison of the local time of a row;
for instants of other zones than UTC the second one, too, which scans can use.
"""

GENERATED = "generated"
"""The key in `meta` of nodes that were made by the planner, not written by the user."""

DIGITS = "digits"
"""The key in `meta` of a cast to a time: the digits after its seconds, which DuckDB drops."""

ZONE = "zone"
"""The key in `meta` of a cast that the session's time zone concerns: see `expressions.zones`."""
TO_LOCAL, FROM_LOCAL, UTC_ONLY, AS_IS = "to local", "from local", "utc only", "as is"
LOCAL, INSTANT = "local", "instant"
"""Values of it: a TIMESTAMP in UTC as a local one, the reverse, an instant that is a TIMESTAMP
where the zone is UTC, and a time that is in UTC on both sides. Others: a cast of an instant to a
local time, and the reverse."""

VARIES = "varies"
"""The key in `meta` of a literal that stands for those of many rows: nothing depends on its text.

Its value is the column that has them (`sql.batch.literal_insert`).
"""


class ArgumentError(ValueError):
    """A wrong argument of a function, a literal or a clause; the text is the user's message.

    `unsupported`: the call is valid in Flink, but not supported here.
    """

    def __init__(self, message: str, unsupported: bool = False) -> None:
        super().__init__(message)
        self.unsupported = unsupported


def current_time(name: str) -> exp.Expr:
    """A placeholder for the time of the batch (or bounded query), as function `name` returns it."""
    return exp.Anonymous(this=_CURRENT + name)


def current_time_name(node: exp.Expr | None) -> str | None:
    """The function whose time `current_time` gave a node; None for any other node."""
    if isinstance(node, exp.Anonymous) and str(node.this).startswith(_CURRENT):
        return str(node.this).removeprefix(_CURRENT)
    return None


def number(value: int) -> exp.Expr:
    """An integer literal."""
    return exp.Literal.number(value)


def quoted(name: str) -> exp.Identifier:
    """A name in any case and with any characters."""
    return exp.to_identifier(name, quoted=True)


def column_of(table: str, name: str) -> exp.Column:
    """A column of a relation, by their names as for `quoted`."""
    return exp.column(quoted(name), quoted(table))


def cast(node: exp.Expr, kind: str | exp.DataType) -> exp.Cast:
    """A cast of a DuckDB expression with DuckDB's semantics, not lowered like a user's CAST."""
    tree = exp.Cast(this=node, to=exp.DataType.build(kind, dialect="duckdb"))
    tree.meta[GENERATED] = True
    return tree


def try_cast(node: exp.Expr, kind: str | exp.DataType) -> exp.TryCast:
    """As `cast`, but null for a value that the type cannot hold."""
    tree = exp.TryCast(this=node, to=exp.DataType.build(kind, dialect="duckdb"))
    tree.meta[GENERATED] = True
    return tree


def to_local(moment: exp.Expr) -> exp.Expr:
    """A TIMESTAMP in UTC as the local one of the session's zone."""
    return zone_marked(cast(moment, "TIMESTAMP"), TO_LOCAL)


def from_local(moment: exp.Expr) -> exp.Expr:
    """A local TIMESTAMP of the session's zone in UTC."""
    return zone_marked(cast(moment, "TIMESTAMP"), FROM_LOCAL)


def instant(moment: exp.Expr) -> exp.Expr:
    """A TIMESTAMP in UTC as a TIMESTAMP_LTZ(3); if the session's zone is UTC, as a TIMESTAMP(3)."""
    return zone_marked(cast(moment, "TIMESTAMP_MS"), UTC_ONLY)


def zone_marked(node: exp.Cast, how: str) -> exp.Cast:
    """A cast with the mark of how the session's time zone concerns it: a value of `ZONE`."""
    node.meta[ZONE] = how
    return node


def concat(*parts: exp.Expr) -> exp.Expr:
    """Concatenated texts; null if one of them is."""
    whole, *rest = parts
    for part in rest:
        whole = exp.DPipe(this=whole, expression=part, safe=True)
    return whole


def when(condition: exp.Expr, then: exp.Expr, otherwise: exp.Expr | None = None) -> exp.Case:
    """CASE WHEN condition THEN then ELSE otherwise END; null without `otherwise`."""
    return exp.Case(ifs=[exp.If(this=condition, true=then)], default=otherwise)


GROUP_ID = "group_id"
"""Key in the `meta` of the value of GROUP_ID()."""


def call(name: str, *args: exp.Expr) -> exp.Anonymous:
    """A call of a DuckDB function."""
    return exp.Anonymous(this=name, expressions=list(args))


def aggregate(name: str, *args: exp.Expr) -> exp.AnonymousAggFunc:
    """A Flink aggregate that `expressions.aggregates` translates to DuckDB's terms."""
    return exp.AnonymousAggFunc(this=name, expressions=list(args))


def any_null(args: Args, otherwise: exp.Expr) -> exp.Expr:
    """Null if any of the arguments is null, otherwise `otherwise`."""
    nulls = exp.or_(*(exp.Is(this=arg.copy(), expression=exp.Null()) for arg in args))
    return when(nulls, exp.Null(), otherwise)


def bytes_of(node: exp.Expr) -> exp.Expr:
    """Bytes as they are, or a text as bytes: a CAST that is lowered like the user's own."""
    return exp.Cast(this=node, to=exp.DataType(this=exp.DType.VARBINARY))


def text_of(node: exp.Expr) -> exp.Expr:
    """A value as a text: a CAST that is lowered like the user's own."""
    return exp.Cast(this=node, to=exp.DataType(this=exp.DType.VARCHAR))


def lambda_of(name: str, body: exp.Expr) -> exp.Expr:
    """A DuckDB lambda with one parameter; its body refers to it by `parameter(name)`."""
    tree = exp.Lambda(this=body, expressions=[exp.to_identifier(name)])
    tree.meta[GENERATED] = True
    return tree


def parameter(name: str) -> exp.Expr:
    """A reference to the parameter of a lambda."""
    return exp.Var(this=f'"{name}"')


def tried(build: Callable[..., exp.Expr], *args: exp.Expr) -> exp.Expr:
    """What `build` makes of copies of the arguments; null if it fails at run time.

    DuckDB's TRY contains neither subqueries nor what can end the query. So it gets these arguments
    as parameters of lambdas over lists of one element.
    """
    unsafe = {f"tried{n}": arg for n, arg in enumerate(args) if not _is_allowed_in_try(arg)}
    names = {id(arg): parameter(name) for name, arg in unsafe.items()}
    tree: exp.Expr = call("TRY", build(*(names.get(id(arg), arg).copy() for arg in args)))
    for name, arg in unsafe.items():
        each = call("LIST_TRANSFORM", call("LIST_VALUE", arg.copy()), lambda_of(name, tree))
        tree = call("LIST_EXTRACT", each, number(1))
    return tree


def _is_allowed_in_try(arg: exp.Expr) -> bool:
    calls = (node.name for node in arg.find_all(exp.Anonymous))
    return arg.find(exp.Query) is None and "ERROR" not in calls


def literal_text(node: exp.Expr, what: str) -> str:
    """The text of a string literal; `ArgumentError` for anything else."""
    if not (isinstance(node, exp.Literal) and node.is_string):
        raise ArgumentError(f"{what} must be a string literal", unsupported=True)
    return str(node.this)
