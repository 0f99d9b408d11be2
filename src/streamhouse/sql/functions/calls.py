"""What functions are built from: DuckDB calls, casts, and the time of a batch."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

Args = list[exp.Expr]
Build = Callable[[Args], exp.Expr]
Table = dict[str, tuple[int, int | None, Build]]
"""Names with the least and greatest number of arguments (None: any) and how to build the call."""

MOMENTS = ("PROCTIME", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "CURRENT_DATE", "LOCALTIME")
_MOMENT = "__moment_"


class ArgumentError(ValueError):
    """A call with arguments that the function does not take; the text is the message."""

    def __init__(self, message: str, unsupported: bool = False) -> None:
        super().__init__(message)
        self.unsupported = unsupported


def moment(name: str) -> exp.Expr:
    """The time of the batch (or of the bounded query), as the function `name` gives it."""
    return exp.Anonymous(this=_MOMENT + name)


def moment_name(node: exp.Expr | None) -> str | None:
    """Which of `MOMENTS` a node is, if it is one."""
    if isinstance(node, exp.Anonymous) and str(node.this).startswith(_MOMENT):
        return str(node.this).removeprefix(_MOMENT)
    return None


def number(value: int) -> exp.Expr:
    """A whole number as a literal."""
    return exp.Literal.number(value)


def cast(node: exp.Expr, kind: str | exp.DataType) -> exp.Cast:
    """A cast that only tells the type of a DuckDB call or makes it so."""
    tree = exp.Cast(this=node, to=exp.DataType.build(kind, dialect="duckdb"))
    tree.meta["plain"] = True
    return tree


def try_cast(node: exp.Expr, kind: str | exp.DataType) -> exp.TryCast:
    """The same, null for a value that the type cannot hold."""
    tree = exp.TryCast(this=node, to=exp.DataType.build(kind, dialect="duckdb"))
    tree.meta["plain"] = True
    return tree


def concat(*parts: exp.Expr) -> exp.Expr:
    """Texts one after the other; null if one of them is."""
    whole, *rest = parts
    for part in rest:
        whole = exp.DPipe(this=whole, expression=part, safe=True)
    return whole


def when(condition: exp.Expr, then: exp.Expr, otherwise: exp.Expr | None = None) -> exp.Case:
    """One value or, where the condition is not true, another; null without another."""
    return exp.Case(ifs=[exp.If(this=condition, true=then)], default=otherwise)


def remainder(value: exp.Expr, size: int) -> exp.Expr:
    """What is left of a division; of a negative number, too, it is not negative."""
    rest = exp.Mod(this=exp.Paren(this=value), expression=number(size))
    shifted = exp.Paren(this=exp.Add(this=rest, expression=number(size)))
    return exp.Paren(this=exp.Mod(this=shifted, expression=number(size)))


def call(name: str, *args: exp.Expr) -> exp.Anonymous:
    """A call of DuckDB's function."""
    return exp.Anonymous(this=name, expressions=list(args))


def aggregate(name: str, *args: exp.Expr) -> exp.AnonymousAggFunc:
    """An aggregate of Flink's, which `expressions.aggregates` says in DuckDB's terms."""
    return exp.AnonymousAggFunc(this=name, expressions=list(args))


def plain(kind: type[exp.Expr], *names: str) -> Build:
    """A function that sqlglot knows under a class, its arguments by position."""

    def build(args: Args) -> exp.Expr:
        return kind(**dict(zip(names or ("this",), args, strict=False)))

    return build


def duck(name: str, result: str) -> Build:
    """DuckDB's function of the same meaning, with its result type."""
    return lambda args: cast(call(name, *args), result)


def any_null(args: Args, otherwise: exp.Expr) -> exp.Expr:
    """Null if an argument is null."""
    nulls = exp.or_(*(exp.Is(this=arg.copy(), expression=exp.Null()) for arg in args))
    return when(nulls, exp.Null(), otherwise)


def bytes_of(node: exp.Expr) -> exp.Expr:
    """Bytes as they are, or those of a text: a CAST as the user's own."""
    return exp.Cast(this=node, to=exp.DataType(this=exp.DType.VARBINARY))


def lambda_of(name: str, body: exp.Expr) -> exp.Expr:
    """DuckDB's lambda of one parameter, which stands in the body as `parameter(name)`."""
    tree = exp.Lambda(this=body, expressions=[exp.to_identifier(name)])
    tree.meta["plain"] = True
    return tree


def parameter(name: str) -> exp.Expr:
    """The parameter of a lambda."""
    return exp.Var(this=f'"{name}"')


def literal_text(node: exp.Expr, what: str) -> str:
    """The text of a string literal; `ArgumentError` for anything else."""
    if not (isinstance(node, exp.Literal) and node.is_string):
        raise ArgumentError(f"{what} must be a string literal", unsupported=True)
    return str(node.this)
