"""Splits a continuous query into query blocks: one for each nested SELECT."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from sqlglot import exp

from streamhouse.close_matches import nearest
from streamhouse.errors import SqlError
from streamhouse.sql import functions, node_errors
from streamhouse.sql.parser import hints
from streamhouse.sql.plan import LookupRetry, Resolver, TableInfo
from streamhouse.sql.resolution import columns, window_columns
from streamhouse.sql.resolution.columns import Visible
from streamhouse.sql.resolution.event_time import VERSIONED
from streamhouse.sql.select_parts import conjuncts
from streamhouse.sql.streaming import row_number as ranked
from streamhouse.sql.streaming import union_all
from streamhouse.sql.streaming.row_number import Ranked
from streamhouse.sql.text import Script

_SELECT_ARGS = ("expressions", "from_", "joins", "where", "group", "hint")
_WORDS = {"order": "ORDER BY", "windows": "WINDOW", "laterals": "LATERAL", "locks": "FOR UPDATE"}


@dataclass
class Lookup:
    """One lookup join of the query, with resolved names."""

    table: TableInfo
    alias: str
    left: bool
    on: exp.Expr
    keys: tuple[str, ...]
    options: dict[str, str]
    relation: str = ""
    retry: LookupRetry | None = None
    strategy: str | None = None
    ordered: bool = False


@dataclass(frozen=True)
class Input:
    """A column of the source or of a `lookup`, or a function that returns the `time`."""

    node: exp.Expr
    lookup: bool = False
    time: bool = False


@dataclass
class SelectBlock:
    """One SELECT: its input (`below`, or None for the source itself), clauses and projections.

    `number` names the column with a ROW_NUMBER of which a block around it selects the first.
    `kept` replaces `where` if retractions pass its lookups: see `changing_rows`.
    """

    select: exp.Select
    alias: str
    below: SelectBlock | None
    lookups: list[Lookup] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    items: list[exp.Expr] = field(default_factory=list)
    where: exp.Expr | None = None
    kept: exp.Expr | None = None
    group: list[exp.Expr] = field(default_factory=list)
    ranked: Ranked | None = None
    number: str | None = None

    def innermost_first(self) -> list[SelectBlock]:
        """The blocks from the innermost, which reads the source, to this one."""
        return [*(self.below.innermost_first() if self.below else ()), self]

    def definition(self, name: str) -> exp.Expr:
        return self.items[self.names.index(name)]

    def inputs(self, item: exp.Expr) -> Iterator[Input]:
        """The inputs of an expression of this block, through the subqueries below it."""
        for node in item.walk():
            if functions.current_time_name(node) is not None:
                yield Input(node, time=True)
            elif isinstance(node, exp.Column):
                if node.table != self.alias:
                    yield Input(node, lookup=True)
                elif self.below is None:
                    yield Input(node)
                else:
                    yield from self.below.inputs(self.below.definition(node.name))

    def reads_source_only(self, item: exp.Expr) -> bool:
        """Whether an expression has the same value whenever it is computed for a source row."""
        return not any(found.lookup or found.time for found in self.inputs(item))

    def source_column(self, item: exp.Expr) -> str | None:
        """The source's column that an expression copies; None for anything else."""
        inner = item.unalias().unnest()
        if not isinstance(inner, exp.Column) or inner.table != self.alias:
            return None
        below = self.below
        return inner.name if below is None else below.source_column(below.definition(inner.name))


class QueryBlockReader:
    """Reads the blocks of a continuous query; `read` sets `source` and `source_options`."""

    def __init__(self, script: Script, resolver: Resolver) -> None:
        self.script = script
        self.resolver = resolver
        self.source: TableInfo | None = None
        self.source_options: dict[str, str] = {}

    def parts(self, tree: exp.Expr) -> list[exp.Expr]:
        """The SELECTs that UNION ALL combines; each needs its own reader."""
        if isinstance(tree, exp.Subquery):
            tree = tree.unnest()
        for inner in list(tree.find_all(exp.Query)):
            if inner is not tree and inner.args.get("with_"):
                inner.replace(self._inlined(inner))
        return union_all.branches(self.script, self._inlined(tree))

    def read(self, tree: exp.Expr) -> SelectBlock:
        """The outermost block of a query, linked to the others by `below`.

        Raises `SqlError` and `UnsupportedSqlError` with line and column.
        """
        block = self._block(self._select(tree))
        if block.number is not None:
            ranks = (one.ranked.node for one in block.innermost_first() if one.ranked is not None)
            self._not_streamed(next(ranks), "a window function")
        lookups = (lookup for level in block.innermost_first() for lookup in level.lookups)
        for number, lookup in enumerate(lookups):
            lookup.relation = f"dim_{number}"
        return block

    def _select(self, tree: exp.Expr) -> exp.Select:
        if not isinstance(tree, exp.Select):
            self._not_streamed(tree, type(tree).__name__.upper())
        return tree

    def _refuse(self, node: exp.Expr, message: str) -> NoReturn:
        raise node_errors.unsupported(self.script, node, message)

    def _not_streamed(self, node: exp.Expr, reason: str) -> NoReturn:
        raise node_errors.not_streamed(self.script, node, reason)

    def _error(self, node: exp.Expr, message: str) -> SqlError:
        return node_errors.error(self.script, node, message)

    def _inlined(self, tree: exp.Expr) -> exp.Expr:
        """Replace each reference to a WITH query by that query as a subquery."""
        clause = tree.args.get("with_")
        if clause is None:
            return tree
        if clause.args.get("recursive"):
            self._not_streamed(clause, "WITH RECURSIVE")
        bodies: dict[str, exp.Expr] = {}
        tree.set("with_", None)
        for cte in clause.expressions:
            if cte.args["alias"].columns:
                self._not_streamed(cte, "column names after a WITH query's name")
            bodies[cte.alias] = self._replace(cte.this, bodies)
        return self._replace(tree, bodies)

    def _replace(self, tree: exp.Expr, bodies: dict[str, exp.Expr]) -> exp.Expr:
        for table in list(tree.find_all(exp.Table)):
            if table.args.get("db") or table.name not in bodies or table.args.get("version"):
                continue
            alias = exp.TableAlias(this=exp.to_identifier(table.alias_or_name))
            new = exp.Subquery(this=bodies[table.name].copy(), alias=alias)
            new.meta.update(table.meta)
            table.replace(new)
        return tree

    def _block(self, select: exp.Select) -> SelectBlock:
        number = ranked.taken(select)
        self._check_clauses(select)
        visible: Visible = {}
        clause = select.args.get("from_")
        if clause is None:
            self._not_streamed(select, "a SELECT without FROM")
        alias, below = self._read_source(clause.this, visible)
        block = SelectBlock(select, alias, below)
        for join in select.args.get("joins") or []:
            block.lookups.append(self._lookup(join, visible, block))
        self._apply_hints(select, block)
        self._projections(block, visible)
        where = select.args.get("where")
        if where is not None:
            block.where = columns.resolve(self.script, where.this.copy(), visible)
            for node in block.where.find_all(exp.AggFunc):
                raise self._error(node, "an aggregate is not allowed in WHERE")
        self._group(block, visible)
        ranked.filter_first(self.script, block)
        if number is not None:
            block.number, window = number
            block.ranked = Ranked.of(self.script, window, visible)
        return block

    def _check_clauses(self, select: exp.Select) -> None:
        for key in select.args:
            if not select.args[key] or key in _SELECT_ARGS:
                continue
            clause = select.args[key]
            node = clause[0] if isinstance(clause, list) else clause
            self._not_streamed(
                node if isinstance(node, exp.Expr) else select, _WORDS.get(key, key).upper()
            )
        parts = [*select.expressions, *(select.args.get(k) for k in ("where", "group"))]
        parts += [join.args.get("on") for join in select.args.get("joins") or []]
        for part in parts:
            for node in part.find_all(exp.Window, exp.Query) if part is not None else ():
                is_window = isinstance(node, exp.Window)
                self._not_streamed(node, "a window function" if is_window else "a subquery")

    def _read_source(self, node: exp.Expr, visible: Visible) -> tuple[str, SelectBlock | None]:
        if isinstance(node, exp.Subquery):
            extra = columns.first_set(node.args, ("this", "alias"))
            if extra or node.meta.get("hints"):
                self._refuse(node, "a subquery takes only an alias; write hints after its table")
            below = self._block(self._select(node.unnest()))
            alias = node.alias or "EXPR$"
            self._check_alias(node)
            if below.group or _aggregates(below.items):
                self._not_streamed(node, "an aggregation in a subquery")
            visible[alias] = dict.fromkeys(below.names)
            return alias, below
        if not isinstance(node, exp.Table):
            self._not_streamed(node, type(node).__name__.upper())
        self._check_table(node)
        if node.args.get("version") is not None:
            self._not_streamed(node.args["version"], "FOR … AS OF at the table of FROM")
        self.source = columns.resolve_table(self.script, node, self.resolver)
        which = f"table '{node.name}' (connector '{self.source.connector}')"
        if self.source.capabilities.server:
            self._refuse(
                node,
                f"{which} reports no changes, so a stream cannot read it; declare it with "
                "'connector' = 'mysql-cdc', look it up (JOIN … FOR SYSTEM_TIME AS OF …), "
                "or run it once with SET 'execution.runtime-mode' = 'batch'",
            )
        if not self.source.capabilities.stream:
            self._refuse(node, f"{which} can only be written")
        self.source_options = columns.table_options(self.script, node)
        columns.reserved(self.script, (c.name for c in self.source.columns), node)
        visible[node.alias_or_name] = columns.visible_columns(self.source, node.alias_or_name)
        return node.alias_or_name, None

    def _check_table(self, node: exp.Table) -> None:
        allowed = ("this", "db", "catalog", "alias", "version")
        extra = columns.first_set(node.args, allowed)
        if extra:
            self._not_streamed(node, f"{extra.upper()} after a table")
        self._check_alias(node)

    def _check_alias(self, node: exp.Expr) -> None:
        alias = node.args.get("alias")
        if alias is not None and alias.columns:
            self._not_streamed(alias, "column names after an alias")

    def _lookup(self, join: exp.Join, visible: Visible, block: SelectBlock) -> Lookup:
        table = join.this
        version = table.args.get("version") if isinstance(table, exp.Table) else None
        if not isinstance(table, exp.Table) or version is None:
            is_table = isinstance(table, exp.Table | exp.Subquery)
            self._not_streamed(
                table, "a join of two streams" if is_table else type(table).__name__.upper()
            )
        self._check_table(table)
        side, kind = join.side.upper(), join.kind.upper()
        if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER") or join.method:
            words = " ".join(word for word in (join.method, side, kind) if word)
            self._not_streamed(table, f"{words} JOIN")
        on = join.args.get("on")
        if on is None:
            self._refuse(
                table,
                "a lookup join needs ON with an equality of columns; write ON o.customer_id = c.id",
            )
        self._check_version(version, visible, block.alias, block.below)
        info = columns.resolve_table(self.script, table, self.resolver)
        if not info.capabilities.lookup:
            self._refuse(
                table,
                f"table '{table.name}' (connector '{info.connector}') cannot be looked up; copy it "
                "to a Paimon table and look up that one, or declare a MySQL table with "
                "'connector' = 'jdbc'",
            )
        columns.reserved(self.script, (c.name for c in info.columns), table)
        alias = table.alias_or_name
        if alias in visible:
            raise self._error(table, f"'{alias}' is used twice; give the table another alias")
        visible[alias] = columns.visible_columns(info, alias)
        condition = columns.resolve(self.script, on.copy(), visible)
        keys = tuple(equalities(condition, alias))
        if not keys:
            self._refuse(
                on,
                f"ON needs an equality between a column of '{alias}' and the stream; add one "
                "to the conditions",
            )
        options = columns.table_options(self.script, table)
        return Lookup(info, alias, side == "LEFT", condition, keys, options)

    def _check_version(
        self, version: exp.Version, visible: Visible, alias: str, below: SelectBlock | None
    ) -> None:
        """Check that FOR SYSTEM_TIME AS OF has a processing-time column or PROCTIME()."""
        timestamp = version.expression
        if version.this != "TIMESTAMP" or not isinstance(timestamp, exp.Column):
            if functions.current_time_name(timestamp) != "PROCTIME":
                self._refuse(
                    version, "a lookup join needs FOR SYSTEM_TIME AS OF a column PROCTIME()"
                )
            return
        offsets = node_errors.position_of(self.script, timestamp)
        expression = columns.resolve(self.script, timestamp.copy(), visible)
        while (
            isinstance(expression, exp.Column) and below is not None and expression.table == alias
        ):
            expression = below.definition(expression.name)
            alias, below = below.alias, below.below
        if functions.current_time_name(expression) != "PROCTIME":
            message = (
                f"'{self.script.text[slice(*offsets)]}' is not a processing-time column, and a "
                "join of a table as of another time is not supported, since a table has its newest "
                f"rows; name {VERSIONED}"
            )
            self._refuse(timestamp, message)

    def _apply_hints(self, select: exp.Select, block: SelectBlock) -> None:
        hint = select.args.get("hint")
        if hint is None:
            return
        body, start = hint.expressions[0].name, hint.meta["start"] + 3
        seen: set[str] = set()
        for lookup_hint in hints.lookup_hints(self.script, body, start):
            matching = [
                k for k in block.lookups if lookup_hint.table in (k.alias, k.table.name[-1])
            ]
            if not matching:
                aliases = [k.alias for k in block.lookups]
                message = f"hint LOOKUP: no lookup join has the table '{lookup_hint.table}'; "
                message += nearest(lookup_hint.table, aliases)
                raise self.script.error(message, lookup_hint.start, lookup_hint.end)
            if len(matching) > 1 or matching[0].alias in seen:
                message = f"hint LOOKUP: '{lookup_hint.table}' does not name exactly one join; "
                message += "use its alias"
                raise self.script.error(message, lookup_hint.start, lookup_hint.end)
            seen.add(matching[0].alias)
            matching[0].retry = lookup_hint.retry
            matching[0].strategy = lookup_hint.strategy
            matching[0].ordered = lookup_hint.ordered

    def _projections(self, block: SelectBlock, visible: Visible) -> None:
        projections = columns.expand_stars(self.script, block.select, visible)
        names = (item.alias_or_name for item in projections)
        window_columns.check_names(self.script, block.select, names)
        block.names = columns.output_names(projections)
        for name, item in zip(block.names, projections, strict=True):
            columns.reserved(self.script, [name], item)
            inner = columns.unaliased(item)
            block.items.append(columns.resolve(self.script, inner, visible))
        first_part = block.select.meta.get(union_all.LIKE)
        if first_part is not None:
            self._name_like(
                block, QueryBlockReader(self.script, self.resolver)._block(first_part.copy()).names
            )

    def _name_like(self, block: SelectBlock, names: list[str]) -> None:
        """Give a part of UNION ALL the column names of the first part."""
        if len(names) != len(block.names):
            raise self._error(
                block.select,
                f"this part of UNION ALL returns {len(block.names)} column(s), the first part "
                f"{len(names)}: {', '.join(names)}",
            )
        block.names = names

    def _group(self, block: SelectBlock, visible: Visible) -> None:
        group = block.select.args.get("group")
        if group is None:
            return
        extra = columns.first_set(group.args, ("expressions",))
        if extra:
            self._not_streamed(group, f"GROUP BY {extra.upper().replace('_', ' ')}")
        for item in group.expressions:
            if isinstance(item, exp.Cube | exp.GroupingSets | exp.Rollup):
                self._not_streamed(item, f"GROUP BY {item.sql().partition('(')[0].strip()}")
        block.group = [
            columns.resolve(self.script, item.copy(), visible) for item in group.expressions
        ]


def _aggregates(items: list[exp.Expr]) -> list[exp.Expr]:
    return [node for item in items for node in item.find_all(exp.AggFunc)]


def equalities(condition: exp.Expr, alias: str) -> dict[str, exp.Expr]:
    """Columns of `alias` that are compared by `=`, each with the other side (first one only)."""
    sides: dict[str, exp.Expr] = {}
    for part in conjuncts(condition):
        inner = part.unnest()
        if not isinstance(inner, exp.EQ):
            continue
        for one, other in ((inner.left, inner.right), (inner.right, inner.left)):
            one = one.unnest()
            others = {column.table for column in other.find_all(exp.Column)}
            if isinstance(one, exp.Column) and one.table == alias and alias not in others:
                sides.setdefault(one.name, other)
                break
    return sides
