"""The result of a whole tree as one DuckDB SQL text."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from streamhouse.operators.operator import Operator

_NONE: Mapping[int, str] = MappingProxyType({})


def whole_sql(root: Operator, known: Mapping[int, str] = _NONE) -> str:
    """The SQL of a tree's result; `known` are the relations of operators' results, by their id."""
    names, parts = dict(known), list[str]()

    def visit(operator: Operator) -> str:
        if id(operator) not in names:
            sql = operator.whole([visit(each) for each in operator.inputs])
            names[id(operator)] = f"_op_{len(parts)}"
            parts.append(f"{names[id(operator)]} AS ({sql})")
        return names[id(operator)]

    name = visit(root)
    with_ = f"WITH {', '.join(parts)} " if parts else ""
    return f"{with_}SELECT * FROM {name}"
