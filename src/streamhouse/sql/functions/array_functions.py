"""Builds DuckDB expressions for Flink's array and map functions."""

from __future__ import annotations

from sqlglot import exp

from streamhouse.sql.functions.builtin_udfs import arrow_call
from streamhouse.sql.functions.expression_builders import (
    GENERATED,
    Args,
    ArgumentError,
    Build,
    Table,
    any_null,
    call,
    cast,
    duck,
    lambda_of,
    number,
    parameter,
    when,
)

_X = "x"


def _same(name: str) -> Build:
    """Builds a call of DuckDB's function `name`, without a cast."""
    return lambda args: call(name, *args)


def _strict(name: str) -> Build:
    """As `_same`, but null if an argument is null."""
    return lambda args: any_null(args, call(name, *args))


def _is_same(one: exp.Expr, other: exp.Expr) -> exp.Expr:
    return exp.NullSafeEQ(this=one, expression=other)


def _if_array(array: exp.Expr, result: exp.Expr) -> exp.Expr:
    """`result`, or null if the array is null; other arguments may be null."""
    return any_null([array], result)


def _contains(args: Args) -> exp.Expr:
    array, value = args
    is_equal = lambda_of(_X, _is_same(parameter(_X), value))
    contained = exp.GT(this=call("LEN", call("LIST_FILTER", array, is_equal)), expression=number(0))
    return cast(_if_array(array.copy(), exp.Paren(this=contained)), "BOOLEAN")


def _position(args: Args) -> exp.Expr:
    return cast(
        any_null(args, exp.Coalesce(this=call("LIST_POSITION", *args), expressions=[number(0)])),
        "INT",
    )


def _remove(args: Args) -> exp.Expr:
    array, unwanted = args
    others = lambda_of(_X, exp.NullSafeNEQ(this=parameter(_X), expression=unwanted))
    return call("LIST_FILTER", array, others)


def _distinct(array: exp.Expr) -> exp.Expr:
    """The distinct elements, null included, in the order of their first occurrence."""
    index_name = "i"
    first = exp.EQ(
        this=call("LEN", call(
            "LIST_FILTER",
            call("ARRAY_SLICE", array.copy(), number(1), exp.Paren(this=exp.Sub(
                this=parameter(index_name), expression=number(1)))),
            lambda_of("y", _is_same(parameter("y"), parameter(_X))),
        )),
        expression=number(0),
    )  # fmt: skip
    predicate = exp.Lambda(
        this=first, expressions=[exp.to_identifier(_X), exp.to_identifier(index_name)]
    )
    predicate.meta[GENERATED] = True
    return call("LIST_FILTER", array, predicate)


def _intersect_or_except(keep_common: bool) -> Build:
    """ARRAY_INTERSECT (`keep_common`) or ARRAY_EXCEPT; the result has no duplicates."""

    def build(args: Args) -> exp.Expr:
        one, other = args
        in_other = exp.GT(
            this=call("LEN", call(
                "LIST_FILTER", other.copy(),
                lambda_of("z", _is_same(parameter("z"), parameter("w"))),
            )),
            expression=number(0),
        )  # fmt: skip
        condition = in_other if keep_common else exp.Not(this=exp.Paren(this=in_other))
        distinct = _distinct(call("LIST_FILTER", one.copy(), lambda_of("w", condition)))
        return any_null(args, distinct)

    return build


def _slice(args: Args) -> exp.Expr:
    """ARRAY_SLICE(array, start[, end]); indexes count from 1, or backwards from -1; 0 is 1."""

    def from_one(index: exp.Expr) -> exp.Expr:
        zero = exp.EQ(this=exp.Paren(this=index.copy()), expression=number(0))
        return when(zero, number(1), index.copy())

    array, start = args[:2]
    end = args[2] if len(args) > 2 else exp.Neg(this=number(1))
    return any_null(args, call("ARRAY_SLICE", array.copy(), from_one(start), from_one(end)))


def _sort(args: Args) -> exp.Expr:
    """ARRAY_SORT(array[, ascending[, nulls first]])."""
    ascending = _constant(args[1], "the order") if len(args) > 1 else True
    first = _constant(args[2], "the place of nulls") if len(args) > 2 else ascending
    order = exp.Literal.string("ASC" if ascending else "DESC")
    return call(
        "LIST_SORT", args[0], order, exp.Literal.string("NULLS FIRST" if first else "NULLS LAST")
    )


def _constant(node: exp.Expr, what: str) -> bool:
    if not isinstance(node, exp.Boolean):
        raise ArgumentError(f"{what} of ARRAY_SORT must be TRUE or FALSE", unsupported=True)
    return bool(node.this)


def last_entries(keys: exp.Expr, values: exp.Expr) -> tuple[exp.Expr, exp.Expr]:
    """The keys and values of a map, of equal keys the last one; DuckDB would refuse them."""
    index = parameter("i")

    def filtered(items: exp.Expr, key: exp.Expr) -> exp.Expr:
        after = exp.Add(this=index.copy(), expression=number(1))
        later = call("ARRAY_SLICE", keys.copy(), after, call("LEN", keys.copy()))
        is_last = exp.Not(this=call("LIST_CONTAINS", later, key))
        condition = exp.Lambda(
            this=is_last, expressions=[exp.to_identifier(_X), exp.to_identifier("i")]
        )
        condition.meta[GENERATED] = True
        return call("LIST_FILTER", items.copy(), condition)

    key = call("LIST_EXTRACT", keys.copy(), index.copy())
    return filtered(keys, parameter(_X)), filtered(values, key)


def _element(args: Args) -> exp.Expr:
    """ELEMENT: the only element; null for an empty array, an error for several elements."""
    array = args[0]
    several = exp.GT(this=call("LEN", array.copy()), expression=number(1))
    message = exp.Literal.string("ELEMENT needs an array of at most one element")
    only = call("LIST_EXTRACT", array, number(1))
    return when(several, call("ERROR", message), only)


def _join(args: Args) -> exp.Expr:
    return arrow_call("array_join", *args, *([exp.Null()] if len(args) == 2 else []))


TABLE: Table = {
    "CARDINALITY": (1, 1, duck("CARDINALITY", "INT")),
    "SPLIT": (2, 2, duck("STRING_SPLIT", "VARCHAR[]")),
    "ROW": (1, None, lambda args: call("ROW", *args)),
    "ARRAY_APPEND": (2, 2, lambda args: _if_array(args[0], call("LIST_APPEND", *args))),
    "ARRAY_CONCAT": (1, None, _strict("LIST_CONCAT")),
    "ARRAY_CONTAINS": (2, 2, _contains),
    "ARRAY_DISTINCT": (1, 1, lambda args: _distinct(args[0])),
    "ARRAY_EXCEPT": (2, 2, _intersect_or_except(False)),
    "ARRAY_INTERSECT": (2, 2, _intersect_or_except(True)),
    "ARRAY_JOIN": (2, 3, _join),
    "ARRAY_MAX": (1, 1, _same("LIST_MAX")),
    "ARRAY_MIN": (1, 1, _same("LIST_MIN")),
    "ARRAY_POSITION": (2, 2, _position),
    "ARRAY_PREPEND": (
        2,
        2,
        lambda args: _if_array(args[0], call("LIST_PREPEND", args[1], args[0])),
    ),
    "ARRAY_REMOVE": (2, 2, _remove),
    "ARRAY_REVERSE": (1, 1, _same("LIST_REVERSE")),
    "ARRAY_SLICE": (2, 3, _slice),
    "ARRAY_SORT": (1, 3, _sort),
    "ARRAY_UNION": (2, 2, lambda args: any_null(args, _distinct(call("LIST_CONCAT", *args)))),
    "ELEMENT": (1, 1, _element),
    "MAP_ENTRIES": (1, 1, _same("MAP_ENTRIES")),
    "MAP_FROM_ARRAYS": (2, 2, lambda args: any_null(args, call("MAP", *last_entries(*args)))),
    "MAP_KEYS": (1, 1, _same("MAP_KEYS")),
    "MAP_UNION": (1, None, _strict("MAP_CONCAT")),
    "MAP_VALUES": (1, 1, _same("MAP_VALUES")),
}
