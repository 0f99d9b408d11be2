"""Finds the columns that a query reads of its relations."""

from __future__ import annotations

from sqlglot import exp

from streamhouse.sql.plan import TableInfo


def used_columns(trees: list[exp.Expr], relation: str, info: TableInfo) -> tuple[str, ...]:
    """The columns of a relation that the trees read, in the table's order."""
    used = columns_read(trees).get(relation, set())
    return tuple(column.name for column in info.columns if column.name in used)


def columns_read(trees: list[exp.Expr]) -> dict[str, set[str]]:
    """The columns that the trees read of each relation."""
    columns_by_relation: dict[str, set[str]] = {}
    for tree in trees:
        by_select: dict[int, dict[str, set[str]]] = {}
        for table in tree.find_all(exp.Table):
            if table.args.get("db"):
                continue
            select = table.find_ancestor(exp.Select)
            assert select is not None
            if id(select) not in by_select:
                by_select[id(select)] = _by_alias(select)
            used = by_select[id(select)].get(table.alias_or_name, set())
            columns_by_relation.setdefault(table.name, set()).update(used)
    return columns_by_relation


def _by_alias(select: exp.Select) -> dict[str, set[str]]:
    columns_by_alias: dict[str, set[str]] = {}
    for column in select.find_all(exp.Column):
        columns_by_alias.setdefault(column.table, set()).add(column.name)
    return columns_by_alias
