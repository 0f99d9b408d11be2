"""Python functions as UDFs of DuckDB: calls them, checks their results, reports their errors."""

import datetime
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

from streamhouse.duckdb_database import open_database
from streamhouse.errors import QueryError
from streamhouse.sql.functions.builtin_udfs import positional
from streamhouse.sql.types import base, digits, duck_type
from streamhouse.sql.udf.function import PythonFunction, ValueType
from streamhouse.sql.udf_modules.module import compute_of

_FAILED = "a Python function has failed"
_SHOWN_LENGTH = 200
_call_lock = threading.Lock()
"""Serializes calls: DuckDB calls from several threads; functions need not be thread-safe."""
_UNITS = {0: "s", 3: "ms", 6: "us", 9: "ns"}
_VALUES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), (int,)),
    **dict.fromkeys(("FLOAT", "DOUBLE"), (float, int)),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_LTZ"), (datetime.datetime,)),
    "BOOLEAN": (bool,),
    "DECIMAL": (Decimal, int),
    "STRING": (str,),
    "BYTES": (bytes,),
    "DATE": (datetime.date,),
    "TIME": (datetime.time,),
}
"""Python types that a function may return for a SQL type; Arrow would convert more, with loss."""
_FAILURES = (pa.ArrowException, OverflowError, TypeError, ValueError)
"""Errors of values that an Arrow array cannot have."""
_KINDS = pa.types
_FAMILIES: tuple[tuple[Callable[[pa.DataType], bool], ...], ...] = (
    (_KINDS.is_float64, _KINDS.is_floating),
    (_KINDS.is_decimal, _KINDS.is_integer),
    (_KINDS.is_integer,),
    (_KINDS.is_string, _KINDS.is_large_string, _KINDS.is_string_view),
    (_KINDS.is_binary, _KINDS.is_large_binary, _KINDS.is_binary_view),
    (_KINDS.is_date,),
    (_KINDS.is_time,),
)
"""Kinds of Arrow types: values of any of them are cast to a type of the first one."""


class PythonUdfs:
    """The Python functions of one plan, for the connections that run it.

    DuckDB passes on only the text of an exception; `failure` returns the whole error.
    """

    def __init__(self, functions: Iterable[PythonFunction]) -> None:
        self._functions = tuple(functions)
        self._failure: QueryError | None = None

    def register(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Register the functions on a connection, which must be closed before the process ends.

        Raises `QueryError` for a function that cannot be loaded in this process.
        """
        for function in self._functions:
            signature = function.signature
            connection.create_function(
                function.engine_name,
                self._caller(function),
                [duck_type(declared.type) for declared in signature.parameters],
                duck_type(signature.result.type),
                type=PythonUDFType.ARROW,
                null_handling=FunctionNullHandling.SPECIAL,
            )

    def failure(self, error: BaseException) -> QueryError | None:
        """The error of a Python function, if that is the cause of an error of DuckDB; else None."""
        return self._failure if _FAILED in str(error) else None

    def _caller(self, function: PythonFunction) -> Callable[..., pa.Array]:
        compute = compute_of(function)
        evaluate = _arrays if function.signature.arrays else _values

        def call(*columns: pa.ChunkedArray) -> pa.Array:
            try:
                with _call_lock:
                    return evaluate(function, compute, [_array_of(column) for column in columns])
            except QueryError as error:
                self._failure = error
                raise RuntimeError(_FAILED) from None

        count = len(function.signature.parameters)
        call.__signature__ = positional(count)  # type: ignore[attr-defined]
        return call


def _array_of(column: pa.ChunkedArray) -> pa.Array:
    """The values of a column as one array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _arrays(
    function: PythonFunction, compute: Callable[..., Any], columns: Sequence[pa.Array]
) -> pa.Array:
    rows = len(columns[0])
    try:
        result = compute(*columns)
    except (Exception, SystemExit) as error:
        raise _raised_error(function, error, f"for {rows:,} rows") from error
    if isinstance(result, pa.ChunkedArray):
        result = _array_of(result)
    if not isinstance(result, pa.Array):
        raise _result_error(function, f"a {type(result).__name__}; return a pyarrow.Array")
    if len(result) != rows:
        raise _result_error(
            function, f"{len(result):,} values for {rows:,} rows; return one for each"
        )
    return _cast_result(function, result)


def _values(
    function: PythonFunction, compute: Callable[..., Any], columns: Sequence[pa.Array]
) -> pa.Array:
    signature = function.signature
    strict = [index for index, declared in enumerate(signature.parameters) if not declared.nullable]
    results: list[Any] = []
    python_columns = [
        _python_values(column, declared)
        for column, declared in zip(columns, signature.parameters, strict=True)
    ]
    for row in zip(*python_columns, strict=True):
        if any(row[index] is None for index in strict):
            results.append(None)
            continue
        try:
            value = compute(*row)
        except (Exception, SystemExit) as error:
            raise _raised_error(function, error, f"for {_shortened(row)}") from error
        _check_value(function, value, row)
        results.append(value)
    return _cast_result(function, _array(function, results))


def _python_values(column: pa.Array, declared: ValueType) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if base(declared.type) == "MAP":
        # Arrow returns a map as a list of pairs.
        return [None if value is None else dict(value) for value in values]
    return values


def _check_value(function: PythonFunction, value: Any, row: Sequence[Any]) -> None:
    declared = function.signature.result
    if value is None:
        if declared.nullable:
            return
        raise _result_error(
            function, f"None for {_shortened(row)}; annotate the result as … | None"
        )
    allowed = _VALUES.get(base(declared.type))
    wrong = allowed is not None and not isinstance(value, allowed)
    wrong = wrong or (isinstance(value, bool) and allowed != (bool,))
    wrong = wrong or (base(declared.type) == "DATE" and isinstance(value, datetime.datetime))
    if wrong:
        raise _result_error(
            function,
            f"{_shortened(value)} for {_shortened(row)}, which is not of type {declared.type}",
        )
    if isinstance(value, datetime.datetime):
        zoned = value.utcoffset() is not None
        if zoned != (base(declared.type) == "TIMESTAMP_LTZ"):
            which = "has no" if not zoned else "has a"
            raise _result_error(
                function,
                f"{_shortened(value)}, which {which} time zone; its type is {declared.type}",
            )


def _array(function: PythonFunction, values: Sequence[Any]) -> pa.Array:
    result = function.signature.result
    # With a coarser unit, Arrow would truncate silently; `_cast_result` checks the cast.
    kind = _strict(result, "us")
    try:
        return pa.array(values, kind)
    except _FAILURES as error:
        for value in values:
            try:
                pa.array([value], kind)
            except _FAILURES as first:
                what = f"{_shortened(value)}, which is not of type {result.type}: {first}"
                raise _result_error(function, what) from error
        raise _result_error(
            function, f"values that are not of type {result.type}: {error}"
        ) from error


def _strict(declared: ValueType, unit: str = "") -> pa.DataType:
    """The Arrow type with exactly the precision of the SQL type, or with a `unit` of times."""
    word = base(declared.type)
    if word in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        zone = "UTC" if word == "TIMESTAMP_LTZ" else None
        return pa.timestamp(unit or _UNITS[digits(declared.type)], zone)
    if word == "TIME":
        return pa.time64(unit) if unit else pa.time32(_UNITS[digits(declared.type, 0)])
    return engine_type(declared.type)


@cache
def engine_type(flink: str) -> pa.DataType:
    """The Arrow type in which DuckDB passes values of a Flink type to a function."""
    with open_database(threads=1) as connection:
        table = connection.sql(f"SELECT CAST(NULL AS {duck_type(flink)}) AS v").to_arrow_table()
    return table.schema.field(0).type


def _cast_result(function: PythonFunction, values: pa.Array) -> pa.Array:
    """The values in the Arrow type that DuckDB takes; `QueryError` for a lossy conversion."""
    declared = function.signature.result
    strict, engine = _strict(declared), engine_type(declared.type)
    if values.type == engine == strict:
        return values
    if not _same_family(values.type, strict):
        raise _result_error(
            function, f"an array of {values.type}, declared as {declared.type}; cast it"
        )
    try:
        if pa.types.is_decimal(strict) and pa.types.is_integer(values.type):
            # Arrow requires room for every value of the integer type, not only for those present.
            values = values.cast(pa.decimal128(38, strict.scale))
        return values.cast(strict, safe=True).cast(engine, safe=True)
    except pa.ArrowException as error:
        raise _result_error(
            function, f"a value that is not of type {declared.type}: {error}"
        ) from error


def _same_family(source: pa.DataType, target: pa.DataType) -> bool:
    if _KINDS.is_null(source) or source == target:
        return True
    if _KINDS.is_dictionary(source):
        return _same_family(source.value_type, target)
    if _KINDS.is_timestamp(source) and _KINDS.is_timestamp(target):
        return (source.tz is None) == (target.tz is None)
    if _KINDS.is_list(target):
        is_list = _KINDS.is_list(source) or _KINDS.is_large_list(source)
        return is_list and _same_family(source.value_type, target.value_type)
    for family in _FAMILIES:
        if family[0](target):
            return any(is_kind(source) for is_kind in family)
    return bool(source.id == target.id and (_KINDS.is_map(target) or _KINDS.is_struct(target)))


def _raised_error(function: PythonFunction, error: BaseException, where: str) -> QueryError:
    frames = traceback.extract_tb(error.__traceback__)[1:]
    own = [frame for frame in frames if frame.filename == frames[0].filename]
    inside = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    text = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
    return QueryError(
        f"function {function.name} ('{function.target}') raised {text}{inside}, {where}; "
        "return a value instead, or filter out such rows"
    )


def _result_error(function: PythonFunction, what: str) -> QueryError:
    return QueryError(f"function {function.name} ('{function.target}') returned {what}")


def _shortened(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_shortened, value))})"
    text = repr(value)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}…"
