"""Macros in place of Python functions, for DuckDB connections that only bind queries."""

from __future__ import annotations

import re
from collections.abc import Iterator

from streamhouse.sql.types import duck_type
from streamhouse.sql.udf.function import PREFIX
from streamhouse.sql.udf.registry import by_engine_name

_CALLED = re.compile(rf"\b{PREFIX}\w+_[0-9a-f]{{12}}\b", re.IGNORECASE)


def macros(sql: str) -> Iterator[str]:
    """Yields a CREATE MACRO statement for each known Python function that a text calls.

    The macro has the function's name in DuckDB, its number of arguments and its result type, and
    does not call it. It takes arguments of any type: `expressions.udf_conversion` has checked them,
    or binds the query to learn their types.
    """
    for name in {word.lower() for word in _CALLED.findall(sql)}:
        function = by_engine_name(name)
        if function is None:
            continue
        names = [f"a{number}" for number in range(len(function.signature.parameters))]
        all_null = " AND ".join(f"{parameter} IS NULL" for parameter in names)
        kind = duck_type(function.signature.result.type)
        yield (
            f"CREATE TEMP MACRO {name}({', '.join(names)}) AS "
            f"CASE WHEN {all_null} THEN CAST(NULL AS {kind}) END"
        )
