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
from streamhouse.sql.resolution import columns
from streamhouse.sql.resolution.columns import Visible
from streamhouse.sql.streaming import row_number as ranked
from streamhouse.sql.streaming import union_all
from streamhouse.sql.streaming.row_number import Ranked
from streamhouse.sql.streaming.union_all import RECOMPUTED
from streamhouse.sql.text import Script

_SELECT_ARGS = ("expressions", "from_", "joins", "where", "group", "hint")
_CLAUSES = {
    "distinct": f"DISTINCT is not supported on a stream; {RECOMPUTED}",
    "order": "ORDER BY is not supported on a stream; order when reading the target table",
    "limit": "LIMIT is not supported on a stream; limit when reading the target table",
    "offset": "OFFSET is not supported on a stream; apply it when reading the target table",
    "having": "HAVING is not supported on a stream; filter when reading the target table",
    "windows": "WINDOW is not supported on a stream; number the rows when reading the table",
    "qualify": "QUALIFY is not supported; filter by the number in a query around this one",
    "locks": "FOR UPDATE is not supported; leave it out",
    "into": "INTO is not supported; write INSERT INTO t SELECT …",
    "laterals": "LATERAL is not supported on a stream; store its result in a table",
}
_ONCE = "run it once with SET 'execution.runtime-mode' = 'batch'"
_BATCH = f"or {_ONCE}"
_JOIN_HELP = (
    f"a join of two streams is not supported; {RECOMPUTED}. JOIN t FOR SYSTEM_TIME AS OF "
    "o.proc_time AS c joins each row once, with t's rows at that time: later changes of t do not "
    "reach its result"
)
_GROUPINGS = (
    "GROUP BY {} is not supported on a stream; write one INSERT for each grouping, each into its "
    "own table"
)
_GROUPING_KINDS = {exp.Cube: "CUBE", exp.GroupingSets: "GROUPING SETS", exp.Rollup: "ROLLUP"}
_TABLES = (exp.Table, exp.Subquery)


@dataclass
class Lookup:
    """One lookup join of the query, with resolved names."""

    table: TableInfo
    alias: str
    relation: str
    left: bool
    on: exp.Expr
    keys: tuple[str, ...]
    options: dict[str, str]
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
class QueryBlock:
    """One SELECT: its input (`below`, or None for the source itself), clauses and projections.

    `kept` replaces `where` if retractions pass its lookups: see `changing_rows`.
    """

    select: exp.Select
    alias: str
    below: QueryBlock | None
    lookups: list[Lookup] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    items: list[exp.Expr] = field(default_factory=list)
    where: exp.Expr | None = None
    kept: exp.Expr | None = None
    group: list[exp.Expr] = field(default_factory=list)
    ranked: Ranked | None = None

    def innermost_first(self) -> list[QueryBlock]:
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

    def __init__(self, script: Script, resolver: Resolver, dimensions: int = 0) -> None:
        self.script = script
        self.resolver = resolver
        self.source: TableInfo | None = None
        self.source_options: dict[str, str] = {}
        self._dimensions = dimensions

    def parts(self, tree: exp.Expr) -> list[exp.Expr]:
        """The SELECTs that UNION ALL combines; each needs its own reader."""
        if isinstance(tree, exp.Subquery):
            tree = tree.unnest()
        for inner in list(tree.find_all(exp.Query)):
            if inner is not tree and inner.args.get("with_"):
                inner.replace(self._inlined(inner))
        return union_all.branches(self.script, self._inlined(tree))

    def read(self, tree: exp.Expr) -> QueryBlock:
        """The outermost block of a query, linked to the others by `below`.

        Raises `SqlError` and `UnsupportedSqlError` with line and column.
        """
        if isinstance(tree, exp.SetOperation):
            word = type(tree).__name__.upper()
            self._refuse(tree, f"{word} is not supported on a stream; {_ONCE}")
        if not isinstance(tree, exp.Select):
            self._refuse(tree, f"a continuous query is a SELECT over a table; {_ONCE}")
        return self._block(tree)

    def _refuse(self, node: exp.Expr, message: str) -> NoReturn:
        raise node_errors.unsupported(self.script, node, message)

    def _error(self, node: exp.Expr, message: str) -> SqlError:
        return node_errors.error(self.script, node, message)

    def _inlined(self, tree: exp.Expr) -> exp.Expr:
        """Replace each reference to a WITH query by that query as a subquery."""
        clause = tree.args.get("with_")
        if clause is None:
            return tree
        if clause.args.get("recursive"):
            self._refuse(clause, f"WITH RECURSIVE is not supported on a stream; {_ONCE}")
        bodies: dict[str, exp.Expr] = {}
        tree.set("with_", None)
        for cte in clause.expressions:
            if cte.args["alias"].columns:
                self._refuse(
                    cte, "column names after a WITH query's name are not supported; use AS"
                )
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

    def _block(self, select: exp.Select) -> QueryBlock:
        ranked.mark(self.script, select)
        self._check_clauses(select)
        visible: Visible = {}
        clause = select.args.get("from_")
        if clause is None:
            self._refuse(
                select, "a continuous query needs FROM; use VALUES or SELECT for fixed rows"
            )
        alias, below = self._read_source(clause.this, visible)
        block = QueryBlock(select, alias, below)
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
        block.ranked = ranked.read(self.script, select, visible)
        return block

    def _check_clauses(self, select: exp.Select) -> None:
        for key in select.args:
            if not select.args[key] or key in _SELECT_ARGS:
                continue
            clause = select.args[key]
            node = clause[0] if isinstance(clause, list) else clause
            word = key.upper().strip("_")
            message = _CLAUSES.get(key, f"{word} is not supported on a stream; leave it out")
            self._refuse(node if isinstance(node, exp.Expr) else select, message)
        parts = [*select.expressions, *(select.args.get(k) for k in ("where", "group"))]
        parts += [join.args.get("on") for join in select.args.get("joins") or []]
        for part in parts:
            for node in part.find_all(exp.Window, exp.Query) if part is not None else ():
                if isinstance(node, exp.Window):
                    self._refuse(node, f"window functions are not supported on a stream; {_ONCE}")
                self._refuse(node, f"a subquery here is not supported on a stream; {_ONCE}")

    def _read_source(self, node: exp.Expr, visible: Visible) -> tuple[str, QueryBlock | None]:
        if isinstance(node, exp.Subquery):
            extra = columns.first_set(node.args, ("this", "alias"))
            if extra or node.meta.get("hints"):
                self._refuse(node, "a subquery takes only an alias; write hints after its table")
            inner = node.this
            while isinstance(inner, exp.Subquery):
                inner = inner.this
            if isinstance(inner, exp.SetOperation):
                word = type(inner).__name__.upper()
                self._refuse(inner, f"{word} is not supported on a stream; {_ONCE}")
            if not isinstance(inner, exp.Select):
                self._refuse(
                    inner,
                    "only a SELECT over a table is allowed in parentheses here; leave them out",
                )
            below = self._block(inner)
            alias = node.alias or "EXPR$"
            if node.args.get("alias") is not None and node.args["alias"].columns:
                self._refuse(
                    node.args["alias"], "column names after an alias are not supported; use AS"
                )
            if below.group or _aggregates(below.items):
                self._refuse(
                    node,
                    "an aggregation in a subquery is not supported; INSERT it into its own table "
                    "and read that, write COUNT(DISTINCT …) instead of grouping twice, " + _BATCH,
                )
            visible[alias] = dict.fromkeys(below.names)
            return alias, below
        if not isinstance(node, exp.Table):
            self._refuse(node, _not_a_table(node))
        self._check_table(node)
        if node.args.get("version") is not None:
            self._refuse(
                node.args["version"],
                "the table that a stream reads takes no FOR … AS OF; leave it out",
            )
        self.source = columns.resolve_table(self.script, node, self.resolver)
        which = f"table '{node.name}' (connector '{self.source.connector}')"
        if self.source.capabilities.server:
            self._refuse(
                node,
                f"{which} reports no changes, so a stream cannot read it; declare it with "
                "'connector' = 'mysql-cdc', look it up (JOIN … FOR SYSTEM_TIME AS OF …), "
                f"{_BATCH}",
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
        if extra == "joins":
            self._refuse(node, "nested joins are not supported; write them one after the other")
        if extra:
            self._refuse(
                node, f"{extra.upper()} after a table is not supported on a stream; leave it out"
            )
        if node.args.get("alias") is not None and node.args["alias"].columns:
            self._refuse(
                node.args["alias"], "column names after an alias are not supported; use AS"
            )

    def _lookup(self, join: exp.Join, visible: Visible, block: QueryBlock) -> Lookup:
        table = join.this
        version = table.args.get("version") if isinstance(table, exp.Table) else None
        if not isinstance(table, exp.Table) or version is None:
            self._refuse(
                table, _not_a_table(table) if not isinstance(table, _TABLES) else _JOIN_HELP
            )
        self._check_table(table)
        side, kind = join.side.upper(), join.kind.upper()
        if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER") or join.method:
            words = " ".join(word for word in (join.method, side, kind) if word)
            self._refuse(table, f"{words} JOIN is not supported on a stream; {RECOMPUTED}")
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
        relation = f"dim_{self._dimensions}"
        self._dimensions += 1
        return Lookup(info, alias, relation, side == "LEFT", condition, keys, options)

    def _check_version(
        self, version: exp.Version, visible: Visible, alias: str, below: QueryBlock | None
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
                "join as of another time is not supported; a column that is computed as PROCTIME() "
                "joins the rows at the time of processing"
            )
            self._refuse(timestamp, message)

    def _apply_hints(self, select: exp.Select, block: QueryBlock) -> None:
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

    def _projections(self, block: QueryBlock, visible: Visible) -> None:
        projections = columns.expand_stars(self.script, block.select, visible)
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

    def _name_like(self, block: QueryBlock, names: list[str]) -> None:
        """Give a part of UNION ALL the column names of the first part."""
        if len(names) != len(block.names):
            raise self._error(
                block.select,
                f"this part of UNION ALL returns {len(block.names)} column(s), the first part "
                f"{len(names)}: {', '.join(names)}",
            )
        block.names = names

    def _group(self, block: QueryBlock, visible: Visible) -> None:
        group = block.select.args.get("group")
        if group is None:
            return
        extra = columns.first_set(group.args, ("expressions",))
        if extra:
            self._refuse(group, _GROUPINGS.format(extra.upper()))
        for item in group.expressions:
            if type(item) in _GROUPING_KINDS:
                self._refuse(item, _GROUPINGS.format(_GROUPING_KINDS[type(item)]))
        block.group = [
            columns.resolve(self.script, item.copy(), visible) for item in group.expressions
        ]


def _not_a_table(node: exp.Expr) -> str:
    """The error message for anything other than a table or subquery in FROM or JOIN."""
    if isinstance(node, exp.Unnest):
        word = "UNNEST"
    elif isinstance(node, exp.Lateral):
        word = "LATERAL"
    elif isinstance(node, exp.Values):
        word = "VALUES"
    else:
        return f"a continuous query reads one table, or a subquery over one; name it, {_BATCH}"
    return f"{word} is not supported on a stream; store the rows in a table and read that, {_BATCH}"


def _aggregates(items: list[exp.Expr]) -> list[exp.Expr]:
    return [node for item in items for node in item.find_all(exp.AggFunc)]


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """The operands of a condition's top-level ANDs."""
    if condition is None:
        return []
    inner = condition.unnest()
    return list(inner.flatten()) if isinstance(inner, exp.And) else [condition]


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
