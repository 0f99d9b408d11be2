"""Infers which columns of a query's result are unique, and which are never null.

Works on the translated tree of a bounded query, whose columns are qualified with their tables. What
is inferred holds for any rows of the tables; what cannot be inferred is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from streamhouse.sql.plan import TableInfo
from streamhouse.sql.types import base

_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")


@dataclass(frozen=True)
class Shape:
    """What is known of a relation's rows.

    Each of `keys` is a set of columns that no two rows have alike, nulls being values; the empty
    set: there is at most one row. `numbered` maps a column with ROW_NUMBER to the columns that it
    is partitioned by, and `kinds` a column of a table to its type as `=` compares it.
    """

    keys: frozenset[frozenset[str]] = frozenset()
    not_null: frozenset[str] = frozenset()
    numbered: Mapping[str, frozenset[str]] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)

    def qualified(self, alias: str) -> Shape:
        """The shape with the names of columns as in a query that calls the relation `alias`."""
        return Shape(
            frozenset(_qualified(key, alias) for key in self.keys),
            _qualified(self.not_null, alias),
            {f"{alias}.{name}": _qualified(key, alias) for name, key in self.numbered.items()},
            {f"{alias}.{name}": kind for name, kind in self.kinds.items()},
        )

    def best_key(self) -> tuple[str, ...] | None:
        """The key with the fewest columns, one that is never null first; None without a key."""
        found = sorted(self.keys, key=lambda key: (not key <= self.not_null, len(key), sorted(key)))
        return tuple(sorted(found[0])) if found else None


_NOTHING = Shape()


def shape_of(tree: exp.Expr, tables: Mapping[str, TableInfo]) -> Shape:
    """The shape of a query's result; `tables` has the table of each relation (`scan_0`, …)."""
    return _Inference(dict(tables)).query(tree)


def _qualified(names: frozenset[str], alias: str) -> frozenset[str]:
    return frozenset(f"{alias}.{name}" for name in names)


def _table_shape(table: TableInfo) -> Shape:
    key = frozenset(table.primary_key)
    never = frozenset(column.name for column in table.columns if not column.nullable) | key
    kinds = {column.name: _kind(column.type) for column in table.columns}
    return Shape(frozenset([key]) if key else frozenset(), never, kinds=kinds)


def _kind(declared: str) -> str:
    """A type's name, the same for types whose values `=` compares without loss."""
    name = declared.removesuffix(" NOT NULL")
    return "INT" if base(name) in _INTEGERS else "STRING" if base(name) == "VARCHAR" else name


class _Inference:
    """Infers the shapes of a query's parts, from its tables upwards."""

    def __init__(self, tables: Mapping[str, TableInfo]) -> None:
        self._known = {name: _table_shape(table) for name, table in tables.items()}

    def query(self, tree: exp.Expr) -> Shape:
        if isinstance(tree, exp.Subquery | exp.Paren):
            return self.query(tree.this)
        with_ = tree.args.get("with_")
        before = self._known
        if with_ is not None:
            if with_.args.get("recursive"):
                return _NOTHING
            self._known = dict(before)
            for cte in with_.expressions:
                self._known[cte.alias] = _renamed(cte, self.query(cte.this))
        try:
            shape = self._body(tree)
        finally:
            self._known = before
        limit = tree.args.get("limit")
        count = None if limit is None else limit.args.get("expression") or limit.args.get("count")
        if isinstance(count, exp.Literal) and count.name in ("0", "1"):
            return replace(shape, keys=frozenset([frozenset[str]()]), numbered={})
        return shape

    def _body(self, tree: exp.Expr) -> Shape:
        if isinstance(tree, exp.SetOperation):
            return self._set_operation(tree)
        return self._select(tree) if isinstance(tree, exp.Select) else _NOTHING

    def _set_operation(self, tree: exp.SetOperation) -> Shape:
        left, right = self.query(tree.left), self.query(tree.right)
        names, others = tree.left.named_selects, tree.right.named_selects
        never = left.not_null
        if isinstance(tree, exp.Union):
            pairs = zip(names, others, strict=False)
            never = frozenset(a for a, b in pairs if a in never and b in right.not_null)
        if tree.args.get("distinct"):
            return Shape(frozenset([frozenset(names)]), never)
        keys = left.keys if isinstance(tree, exp.Except) else frozenset[frozenset[str]]()
        return Shape(keys, never)

    def _select(self, select: exp.Select) -> Shape:
        rows = self._rows(select)
        where = select.args.get("where")
        rows = _filtered(rows, where.this if where is not None else None)
        items = {item.alias_or_name: item.unalias() for item in select.selects}
        never = frozenset(name for name, item in items.items() if _never_null(item, rows.not_null))
        keys = self._keys(select, rows, items)
        if select.args.get("distinct"):
            keys |= {frozenset(items)}
        kinds = {name: rows.kinds.get(_column(item), "") for name, item in items.items()}
        return Shape(keys, never, _numbered(items), kinds)

    def _keys(
        self, select: exp.Select, rows: Shape, items: Mapping[str, exp.Expr]
    ) -> frozenset[frozenset[str]]:
        group = select.args.get("group")
        if group is not None:
            if any(group.args.get(kind) for kind in ("grouping_sets", "cube", "rollup", "all")):
                return frozenset()
            by = [each for each in group.expressions if not isinstance(each, exp.Literal)]
            found = [_named(each, items) for each in by]
            names = [name for name in found if name is not None]
            return frozenset([frozenset(names)]) if len(names) == len(by) else frozenset()
        if any(_aggregates(item) for item in items.values()):
            return frozenset([frozenset[str]()])
        if any(item.find(exp.Unnest, exp.Explode) for item in items.values()):
            return frozenset()
        columns = {_column(item): name for name, item in items.items() if _column(item)}
        return frozenset(
            frozenset(columns[name] for name in key) for key in rows.keys if key <= columns.keys()
        )

    def _rows(self, select: exp.Select) -> Shape:
        """The rows of FROM and JOIN, with qualified columns."""
        from_ = select.args.get("from_")
        if from_ is None or select.args.get("laterals"):
            return _NOTHING
        rows = self._relation(from_.this)
        for join in (*(from_.this.args.get("joins") or ()), *(select.args.get("joins") or ())):
            rows = _joined(rows, self._relation(join.this), join)
        return rows

    def _relation(self, node: exp.Expr) -> Shape:
        if node.args.get("laterals") or node.args.get("pivots"):
            return _NOTHING
        alias = node.args.get("alias")
        if isinstance(alias, exp.TableAlias) and alias.args.get("columns"):
            return _NOTHING
        if isinstance(node, exp.Subquery):
            return self.query(node.this).qualified(node.alias_or_name)
        if isinstance(node, exp.Table):
            return self._known.get(node.name, _NOTHING).qualified(node.alias_or_name)
        return _NOTHING


def _renamed(cte: exp.Expr, shape: Shape) -> Shape:
    """A CTE that renames its columns has a shape that is not known."""
    alias = cte.args.get("alias")
    named = isinstance(alias, exp.TableAlias) and alias.args.get("columns")
    return _NOTHING if named else shape


def _joined(left: Shape, right: Shape, join: exp.Join) -> Shape:
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if kind in ("SEMI", "ANTI"):
        return left
    kinds = {**left.kinds, **right.kinds}
    equal = _equal_columns(join.args.get("on"))
    never: frozenset[str] = frozenset()
    if side != "FULL":
        never = (left.not_null if side != "RIGHT" else frozenset()) | (
            right.not_null if side != "LEFT" else frozenset()
        )
    if not side:
        never |= equal
    pairs = frozenset(a | b for a in left.keys for b in right.keys)
    if side == "FULL":
        # A null may come from the row or from the missing match.
        keys = frozenset(k for k in pairs if k <= left.not_null | right.not_null)
        return Shape(keys, never, kinds=kinds)
    exact = _equal_columns(join.args.get("on"), kinds)
    single = side in ("", "LEFT") and any(key <= exact for key in right.keys)
    keys = pairs | left.keys if single else pairs
    return Shape(keys, never, kinds=kinds)


def _equal_columns(on: exp.Expr | None, kinds: Mapping[str, str] | None = None) -> frozenset[str]:
    """The columns that the conjuncts of a condition compare for equality with another one.

    With `kinds` only those for which `=` is identity: two BIGINT may equal the same DOUBLE, and
    0.0 equals -0.0.
    """
    found = set()
    for part in _conjuncts(on):
        if isinstance(part, exp.EQ):
            sides = [_column(part.this), _column(part.expression)]
            if all(sides) and sides[0].partition(".")[0] != sides[1].partition(".")[0]:
                if kinds is None or _identical(*(kinds.get(side, "") for side in sides)):
                    found |= set(sides)
    return frozenset(found)


def _identical(one: str, other: str) -> bool:
    return bool(one) and one == other and base(one) not in ("FLOAT", "DOUBLE")


def _conjuncts(condition: exp.Expr | None) -> Iterator[exp.Expr]:
    if condition is None:
        return
    node = condition.unnest()
    if isinstance(node, exp.And):
        yield from _conjuncts(node.this)
        yield from _conjuncts(node.expression)
    else:
        yield node


def _filtered(rows: Shape, where: exp.Expr | None) -> Shape:
    """The rows that pass a condition: `x IS NOT NULL`, and `row_number = 1`, tell more of them."""
    keys, never = set(rows.keys), set(rows.not_null)
    for part in _conjuncts(where):
        if isinstance(part, exp.Not):
            test = part.this.unnest()
            if isinstance(test, exp.Is) and isinstance(test.expression, exp.Null):
                never.add(_column(test.this))
        elif isinstance(part, exp.EQ) and part.expression.name == "1":
            partition = rows.numbered.get(_column(part.this))
            if partition is not None and isinstance(part.expression, exp.Literal):
                keys.add(partition)
    return replace(rows, keys=frozenset(keys), not_null=frozenset(never - {""}))


def _numbered(items: Mapping[str, exp.Expr]) -> dict[str, frozenset[str]]:
    numbered = {}
    for name, item in items.items():
        if isinstance(item, exp.Window) and isinstance(item.this, exp.RowNumber):
            by = [_named(each, items) for each in item.args.get("partition_by") or ()]
            names = [each for each in by if each is not None]
            if len(names) == len(by):
                numbered[name] = frozenset(names)
    return numbered


def _column(node: exp.Expr) -> str:
    """The qualified name of a plain column; '' for anything else."""
    return f"{node.table}.{node.name}" if isinstance(node, exp.Column) and node.table else ""


def _named(expression: exp.Expr, items: Mapping[str, exp.Expr]) -> str | None:
    """The output column that has the value of an expression."""
    return next((name for name, item in items.items() if item == expression), None)


def _aggregates(item: exp.Expr) -> bool:
    """Whether an aggregate function is called outside OVER and subqueries."""
    for node in item.find_all(exp.AggFunc):
        over = node.find_ancestor(exp.Window, exp.Query)
        if over is None or over is item.find_ancestor(exp.Query):
            return True
    return False


def _never_null(item: exp.Expr, known: frozenset[str]) -> bool:
    while isinstance(item, exp.Paren) or type(item) is exp.Cast:
        item = item.this
    if isinstance(item, exp.Count | exp.RowNumber):
        return True
    if isinstance(item, exp.Window):
        return isinstance(item.this, exp.RowNumber | exp.Count)
    return isinstance(item, exp.Literal) or _column(item) in known
