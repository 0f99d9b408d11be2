"""Types calls of Python functions in a query, and checks and converts their arguments."""

from duckdb.sqltypes import DuckDBPyType
from sqlglot import exp

from streamhouse.errors import SqlError
from streamhouse.sql.expressions import timestamp_digits, type_probe
from streamhouse.sql.expressions.binder import Relations
from streamhouse.sql.functions.expression_builders import cast
from streamhouse.sql.text import Script
from streamhouse.sql.types import (
    INTEGER_DIGITS,
    NULL,
    base,
    column_type,
    digits,
    duck_type,
    number_digits,
)
from streamhouse.sql.udf.registry import by_engine_name, declaration_of, defined

_TIMESTAMPS = ("TIMESTAMP", "TIMESTAMP_LTZ")


def with_result_type(script: Script, node: exp.Expr) -> exp.Expr:
    """A call cast to its result type, if its function has been defined; else the node itself.

    Raises `SqlError` for a wrong number of arguments.
    """
    declaration = declaration_of(node)
    function = None if declaration is None else defined(declaration)
    if function is None:
        return node
    parameters = function.signature.parameters
    if len(node.expressions) != len(parameters):
        kinds = ", ".join(slot.type for slot in parameters)
        raise _error(
            script,
            node,
            f"{function.name} takes {len(parameters)} argument(s), not {len(node.expressions)}; "
            f"write {function.name}({kinds})",
        )
    call = exp.Anonymous(this=function.engine_name, expressions=node.expressions)
    call.meta.update(node.meta)
    result = function.signature.result.type
    typed_call = cast(call, duck_type(result))
    if base(result) in ("TIMESTAMP", "TIME"):
        timestamp_digits.mark(typed_call, digits(result, 0))
    return typed_call


def converted(script: Script, tree: exp.Expr, relations: Relations) -> exp.Expr:
    """Cast the arguments of all calls in a translated tree to their parameters' types.

    Raises `SqlError` for an argument that needs an explicit CAST.
    """
    for call in list(tree.find_all(exp.Anonymous)):
        if declaration_of(call) is None:
            continue
        function = by_engine_name(call.name)
        assert function is not None
        arguments = []
        parameters = function.signature.parameters
        for number, argument in enumerate(list(call.expressions)):
            parameter, what = parameters[number].type, f"argument {number + 1} of {function.name}"
            _check(script, call, argument, _type(call, argument, relations), parameter, what)
            arguments.append(cast(argument, duck_type(parameter)))
        call.set("expressions", arguments)
    return tree


def _type(call: exp.Expr, argument: exp.Expr, relations: Relations) -> str | None:
    """The Flink type of an argument of a call; None if it is unknown."""
    inner = argument.unnest()
    if not isinstance(inner, exp.Cast):
        return _flink(type_probe.types(call, [argument], relations))
    # This works also in a correlated subquery, where a probe of the value would not.
    null = exp.Cast(this=exp.Null(), to=inner.to.copy())
    return _flink(type_probe.types(exp.Null(), [null], {}))


def _flink(kinds: list[DuckDBPyType] | None) -> str | None:
    if kinds is None:
        return None
    try:
        return column_type(kinds[0])
    except ValueError:
        return str(kinds[0]).upper()


def _check(
    script: Script, call: exp.Expr, argument: exp.Expr, source: str | None, target: str, what: str
) -> None:
    if source is None:
        raise _error(script, call, f"the type of {what} is unknown; write CAST(… AS {target})")
    if widens(source, target) or _literal_fits(argument, target):
        return
    message = f"{what} is {source}, but the function takes {target}; write CAST(… AS {target})"
    raise _error(script, call, message)


def widens(source: str, target: str) -> bool:
    """Whether Flink converts a value of type `source` to `target` implicitly, by widening."""
    one, two = base(source), base(target)
    if one == NULL or source == target:
        return True
    if one in INTEGER_DIGITS:
        if two in INTEGER_DIGITS:
            return INTEGER_DIGITS[one] <= INTEGER_DIGITS[two]
        return (
            two == "DOUBLE"
            or (two == "FLOAT" and INTEGER_DIGITS[one] <= 5)
            or _decimal_holds(source, target)
        )
    if one == "DECIMAL":
        return two == "DOUBLE" or _decimal_holds(source, target)
    if one == "FLOAT":
        return two == "DOUBLE"
    if one in _TIMESTAMPS and two in _TIMESTAMPS:
        # The session's time zone is UTC. The precision of a TIMESTAMP_LTZ is unknown here.
        return one == two == "TIMESTAMP_LTZ" or _unit(source) <= _unit(target)
    if one == two == "TIME":
        return True
    known_types = one in ("ARRAY", "MAP", "ROW") and one == two
    return known_types and duck_type(source) == duck_type(target)


def _decimal_holds(source: str, target: str) -> bool:
    """Whether a DECIMAL target holds all digits of an integer type or another DECIMAL."""
    if base(target) != "DECIMAL":
        return False
    whole, fraction = number_digits(source)
    wider, finer = number_digits(target)
    return whole <= wider and fraction <= finer


def _unit(kind: str) -> int:
    return -(-digits(kind) // 3)


def _literal_fits(argument: exp.Expr, target: str) -> bool:
    """Whether an argument is an integer literal that is in the range of the target type."""
    inner = argument.unnest()
    negative = isinstance(inner, exp.Neg)
    inner = inner.this.unnest() if isinstance(inner, exp.Neg) else inner
    if not isinstance(inner, exp.Literal) or inner.is_string or not inner.name.isdigit():
        return False
    value = int(inner.name)
    limits = {"TINYINT": 2**7, "SMALLINT": 2**15, "INT": 2**31, "BIGINT": 2**63}
    if base(target) in limits:
        return value < limits[base(target)] + negative
    if base(target) == "DECIMAL":
        return len(str(value)) <= number_digits(target)[0]
    return False


def _error(script: Script, node: exp.Expr, message: str) -> SqlError:
    """An error at the function's name; its arguments may have positions elsewhere in the text."""
    start = node.meta.get("start", 0)
    return script.error(message, start, node.meta.get("end", start) + 1)
