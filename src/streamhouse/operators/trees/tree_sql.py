"""The result of a whole tree as one DuckDB SQL text."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from streamhouse.operators.operator import Operator, walk
from streamhouse.operators.scan import Scan
from streamhouse.sql.expressions.binder import quote


def whole_sql(root: Operator, relations: Mapping[str, str] = MappingProxyType({})) -> str:
    """The SQL of a tree's result over the relations of its scans; `relations` replace these."""
    names = {id(each): f"_op_{n}" for n, each in enumerate(walk(root))}
    parts = []
    for each in walk(root):
        inputs = [names[id(i)] for i in each.inputs]
        if isinstance(each, Scan):
            inputs = [quote(relations.get(each.relation, each.relation))]
        parts.append(f"{names[id(each)]} AS ({each.whole(inputs)})")
    return f"WITH {', '.join(parts)} SELECT * FROM {names[id(root)]}"
