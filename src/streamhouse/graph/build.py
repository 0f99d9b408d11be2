"""Builds the graph of a script: plans each statement as `run` would, and runs none."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath

from streamhouse.graph.model import (
    Edge,
    EdgeKind,
    Graph,
    Node,
    QueryKind,
    QueryNode,
    TableKind,
    TableNode,
    layer_of,
)
from streamhouse.operators.trees.drawing import drawn
from streamhouse.runtime.session.dry_run import DraftSession
from streamhouse.runtime.statements.script_plan import plan_script
from streamhouse.runtime.statements.steps import Step
from streamhouse.sql import syntax
from streamhouse.sql.plan import BoundedQuery, LookupJoin, Name, TableInfo
from streamhouse.sql.resolution import columns as names
from streamhouse.sql.views.statement import CreateMaterializedView
from streamhouse.sql.views.stored_view import is_view

_KINDS: dict[str, TableKind] = {"paimon": "table", "view": "view"}


def graph_of(
    statements: Sequence[syntax.Statement],
    warehouse: Mapping[str, str] | None = None,
    files: Sequence[str] = (),
) -> Graph:
    """The graph of a script; nothing is run or created.

    `files`: the file of each statement, if the script has several.

    Tables that the script does not create are looked up in its catalogs, or in `warehouse` (the
    options of a catalog, which then stands for all of them). Raises the errors of `streamhouse run`
    for the script: `SqlError`, `UnsupportedSqlError`, `TableError`, `OptionError`, each with line
    and column.
    """
    session = DraftSession(warehouse)
    builder = _Builder(session)
    for planned in plan_script(session, statements, files):
        builder.add(planned)
    return builder.graph()


class _Builder:
    def __init__(self, session: DraftSession) -> None:
        self._session = session
        self._tables: dict[Name, TableInfo] = {}
        self._queries: list[QueryNode] = []
        self._views: set[Name] = set()
        self._edges: list[tuple[Name | str, Name | str, EdgeKind, str]] = []

    def add(self, planned: Step) -> None:
        """Add a statement: which tables it reads and writes."""
        node = self._query(planned)
        if planned.bounded is not None:
            self._scans(node, planned.bounded, planned.target)
        if planned.view is not None:
            self._scans(node, planned.view.query, planned.target)
        for query, strategies in zip(planned.queries, planned.strategies, strict=True):
            assert isinstance(planned.statement, syntax.Insert | syntax.Select)
            self._reads(node.id, planned.statement.query)
            for lookup, strategy in zip(query.lookups, strategies, strict=True):
                name = self._table(lookup.table)
                self._edges.append((name, node.id, "looks up", lookup_label(lookup, strategy)))
        if planned.target is not None:
            self._edges.append((node.id, self._table(planned.target), "writes", ""))

    def graph(self) -> Graph:
        """The graph of all added statements, without tables that nothing reads or writes."""
        catalogs = {name[0] for name in self._tables}
        labels = {name: ".".join(name if len(catalogs) > 1 else name[1:]) for name in self._tables}
        databases = {name[:2] for name in self._tables}

        def label(name: Name) -> str:
            return name[2] if len(databases) == 1 else labels[name]

        nodes: list[Node] = [
            TableNode(
                labels[name],
                "view" if is_view(table) else _KINDS.get(table.connector, "source"),
                label(name),
                _details(table),
                layer_of(name),
            )
            for name, table in self._tables.items()
        ]
        edges = []
        for start, end, kind, text in self._edges:
            ends_ = [labels[node] if isinstance(node, tuple) else node for node in (start, end)]
            edge = Edge(ends_[0], ends_[1], kind, text)
            if edge not in edges:
                edges.append(edge)
        return Graph((*nodes, *self._queries), tuple(edges))

    def _query(self, planned: Step) -> QueryNode:
        number, statement = len(self._queries) + 1, planned.statement
        kind: QueryKind = "bounded"
        if planned.view is not None:
            kind = "continuous"
        elif planned.queries:
            kind = "console" if planned.target is None else "continuous"
        grouped = bool(planned.queries) and planned.queries[0].merging.grouped
        file = None if planned.file is None else PurePath(planned.file).name
        name = _query_name(planned)
        plan = () if planned.view is None else tuple(drawn(planned.view.tree))
        line = statement.position.line
        details = ("GROUP BY",) if grouped else ()
        node = QueryNode(f"query {number}", kind, name, line, details, file, plan)
        self._queries.append(node)
        return node

    def _table(self, table: TableInfo) -> Name:
        self._tables.setdefault(table.name, table)
        return table.name

    def _scans(self, node: QueryNode, query: BoundedQuery, target: TableInfo | None) -> None:
        for scan in query.scans:
            if target is None or scan.table.name != target.name:
                self._edges.append((self._table(scan.table), node.id, "reads", ""))

    def _reads(self, reader: Name | str, text: syntax.Query) -> None:
        """Add edges from the tables and views of a query to it, and from a view's tables to it."""
        tree = names.parse_query(text).tree
        for leaf in names.leaves(tree):
            if leaf.args.get("version") is not None:
                continue
            full = self._session.full(names.table_name(leaf))
            view = self._session.view(full)
            if view is None:
                self._edges.append((self._table(self._session.table(full)), reader, "reads", ""))
                continue
            if full not in self._views:
                self._views.add(full)
                self._tables.setdefault(full, TableInfo(full, (), connector="view"))
                read = syntax.Query(view.query, syntax.TextPosition(1, 1), functions=view.functions)
                self._reads(full, read)
            self._edges.append((full, reader, "reads", ""))


def _query_name(planned: Step) -> str:
    match planned.statement:
        case syntax.Insert(overwrite=overwrite):
            word = "INSERT OVERWRITE" if overwrite else "INSERT"
            reads = planned.bounded is None or planned.bounded.scans
            return word if reads else f"{word} VALUES"
        case syntax.Select():
            return "SELECT"
        case CreateMaterializedView():
            return "VIEW"
        case syntax.DmlStatement(text=text):
            return text.split(None, 1)[0].upper()
    return "TRUNCATE"


def lookup_label(lookup: LookupJoin, strategy: str) -> str:
    """The label of a lookup: its strategy, keys, join type and retries."""
    words = [f"{strategy} by {', '.join(lookup.keys)}", "LEFT" if lookup.left else "INNER"]
    if lookup.retry is not None:
        retry = lookup.retry
        words.append(f"{retry.max_attempts} retries, {_duration(retry.delay_ms)} apart")
    return " · ".join(words)


def _duration(ms: int) -> str:
    return f"{ms // 1000} s" if ms % 1000 == 0 else f"{ms} ms"


def _details(table: TableInfo) -> tuple[str, ...]:
    """A short description of a table, without server, user or password."""
    options = table.options
    if table.connector == "view":
        return ("view",)
    if is_view(table):
        return ("materialized view",)
    if table.connector == "datagen":
        rows = options.get("number-of-rows")
        return ("datagen", *([f"{int(rows):,} rows"] if rows else []))
    if table.connector != "paimon":
        names = [options[key] for key in ("database-name", "table-name") if key in options]
        return (table.connector, *([".".join(names)] if names else []))
    if not table.primary_key:
        words = ["append-only"]
    else:
        engine = options.get("merge-engine", "deduplicate")
        words = [] if engine == "deduplicate" else [engine]
        words.append(f"key {', '.join(table.primary_key)}")
    if table.partitioned_by:
        words.append(f"partitioned by {', '.join(table.partitioned_by)}")
    return tuple(words)
