"""The forms of a whole tree as DuckDB SQL: its result, and the change of its result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from streamhouse.operators.operator import WEIGHT, Change, Operator, walk
from streamhouse.operators.scan import Scan
from streamhouse.sql.expressions.binder import quote


def whole_sql(root: Operator, relations: Mapping[str, str] = MappingProxyType({})) -> str:
    """The SQL of a tree's result over the relations of its scans; `relations` replace these."""
    return _with(_wholes(root, "_op", relations), f"SELECT * FROM {_names(root, '_op')[id(root)]}")


def changes_sql(root: Operator, before: Mapping[str, str], changes: Mapping[str, str]) -> str:
    """The SQL of the change of a tree's result: its columns and `WEIGHT`, which is never 0.

    Over the relations of its scans as they are now, `before`, and their `changes`, which have
    `WEIGHT` last. Each operator needs a delta form.
    """
    new, old, delta = (_names(root, name) for name in ("_new", "_old", "_delta"))
    parts = [*_wholes(root, "_new"), *_wholes(root, "_old", before)]
    for each in walk(root):
        if isinstance(each, Scan):
            inputs = [Change(quote(changes[each.relation]), "", "")]
        else:
            inputs = [Change(delta[id(i)], old[id(i)], new[id(i)]) for i in each.inputs]
        parts.append((delta[id(each)], each.delta(inputs)))
    columns = ", ".join(map(quote, root.columns))
    net = f"SELECT {columns}, CAST(sum({WEIGHT}) AS BIGINT) AS {WEIGHT} FROM {delta[id(root)]}"
    return _with(parts, f"{net} GROUP BY {columns} HAVING sum({WEIGHT}) <> 0")


def _names(root: Operator, prefix: str) -> dict[int, str]:
    return {id(each): f"{prefix}_{n}" for n, each in enumerate(walk(root))}


def _wholes(
    root: Operator, prefix: str, relations: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[str, str]]:
    """The result of each operator, inputs first."""
    names = _names(root, prefix)
    for each in walk(root):
        inputs = [names[id(i)] for i in each.inputs]
        if isinstance(each, Scan):
            inputs = [quote(relations.get(each.relation, each.relation))]
        yield names[id(each)], each.whole(inputs)


def _with(parts: Iterable[tuple[str, str]], sql: str) -> str:
    return f"WITH {', '.join(f'{name} AS ({part})' for name, part in parts)} {sql}"
