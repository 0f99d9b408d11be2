"""Builds the graph of a script: plans each statement as `run` would, and runs none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from streamhouse.connectors import registry
from streamhouse.errors import StreamhouseError, UnsupportedSqlError
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
from streamhouse.lookup.dimension import is_server
from streamhouse.runtime.batch.insert_columns import given_columns
from streamhouse.runtime.session.ddl import change_session, located
from streamhouse.runtime.session.dry_run import DraftSession
from streamhouse.sql import syntax
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.batch.dml_plan import analyze_dml
from streamhouse.sql.options.known_options import check_lookup
from streamhouse.sql.plan import BoundedQuery, LookupJoin, Name, StreamQuery, TableInfo
from streamhouse.sql.resolution import columns as names
from streamhouse.sql.streaming.query_planner import is_bounded, plan_stream_queries

_KINDS: dict[str, TableKind] = {"paimon": "table", "view": "view"}


def graph_of(
    statements: Iterable[syntax.Statement],
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
    builder = _Builder(DraftSession(warehouse))
    for number, statement in enumerate(statements):
        builder.file = PurePath(files[number]).name if files else None
        try:
            with located(statement):
                builder.add(statement)
        except StreamhouseError as error:
            if files:
                error.within(files[number])
            raise
    return builder.graph()


class _Builder:
    file: str | None = None
    """The file of the statement that is being added; None if the script has only one."""

    def __init__(self, session: DraftSession) -> None:
        self._session = session
        self._tables: dict[Name, TableInfo] = {}
        self._queries: list[QueryNode] = []
        self._views: set[Name] = set()
        self._edges: list[tuple[Name | str, Name | str, EdgeKind, str]] = []

    def add(self, statement: syntax.Statement) -> None:
        """Add a statement: what it defines, or which tables it reads and writes."""
        if change_session(self._session, statement):
            return
        match statement:
            case syntax.StatementSet():
                for insert in statement.inserts:
                    self._insert(insert)
            case syntax.Insert():
                self._insert(statement)
            case syntax.Select():
                self._select(statement)
            case syntax.DmlStatement():
                self._change(statement)
            case syntax.Truncate():
                target = self._session.table(statement.target)
                self._writes(self._query("bounded", "TRUNCATE", statement), target)
            case syntax.Explain():
                self.add(statement.statement)

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
                _KINDS.get(table.connector, "source"),
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

    def _bounded(self, query: syntax.Query) -> bool:
        return not self._session.settings.streaming or is_bounded(query, self._session)

    def _insert(self, statement: syntax.Insert) -> None:
        target = self._session.table(statement.target)
        word = "INSERT OVERWRITE" if statement.overwrite else "INSERT"
        if self._bounded(statement.query):
            given = given_columns(target, statement)
            found = analyze_bounded(statement.query, self._session, target, given)
            node = self._query("bounded", word if found.scans else f"{word} VALUES", statement)
            self._scans(node, found, target)
        else:
            self._check(statement, target)
            given, fixed = given_columns(target, statement), statement.partition
            queries = plan_stream_queries(statement.query, self._session, target, given, fixed)
            node = self._query("continuous", word, statement, _query_details(queries[0]))
            for query in queries:
                self._stream(node, statement.query, query, target)
        self._writes(node, target)

    def _check(self, statement: syntax.Insert, target: TableInfo) -> None:
        registry.check_sink(target, statement.position)
        if statement.overwrite:
            raise UnsupportedSqlError.at(
                statement.position,
                "INSERT OVERWRITE from a stream; write INSERT INTO, or "
                "SET 'execution.runtime-mode' = 'batch'",
            )

    def _select(self, statement: syntax.Select) -> None:
        if self._bounded(statement.query):
            node = self._query("bounded", "SELECT", statement)
            self._scans(node, analyze_bounded(statement.query, self._session), None)
        else:
            queries = plan_stream_queries(statement.query, self._session)
            node = self._query("console", "SELECT", statement, _query_details(queries[0]))
            for query in queries:
                self._stream(node, statement.query, query)

    def _change(self, statement: syntax.DmlStatement) -> None:
        change = analyze_dml(statement, self._session)
        node = self._query("bounded", statement.text.split(None, 1)[0].upper(), statement)
        self._scans(node, change.query, change.target)
        self._writes(node, change.target)

    def _query(
        self, kind: QueryKind, name: str, statement: syntax.Statement, details: tuple[str, ...] = ()
    ) -> QueryNode:
        number, line = len(self._queries) + 1, statement.position.line
        node = QueryNode(f"query {number}", kind, name, line, details, self.file)
        self._queries.append(node)
        return node

    def _table(self, table: TableInfo) -> Name:
        self._tables.setdefault(table.name, table)
        return table.name

    def _writes(self, node: QueryNode, target: TableInfo) -> None:
        self._edges.append((node.id, self._table(target), "writes", ""))

    def _scans(self, node: QueryNode, query: BoundedQuery, target: TableInfo | None) -> None:
        for scan in query.scans:
            if target is None or scan.table.name != target.name:
                self._edges.append((self._table(scan.table), node.id, "reads", ""))

    def _stream(
        self,
        node: QueryNode,
        text: syntax.Query,
        query: StreamQuery,
        target: TableInfo | None = None,
    ) -> None:
        self._reads(node.id, text)
        for lookup in query.lookups:
            if not is_server(lookup):
                check_lookup(lookup.options, f"lookup of {lookup.table.name[-1]}")
        strategies = self._session.strategies(query, target)
        for lookup, strategy in zip(query.lookups, strategies, strict=True):
            name = self._table(lookup.table)
            self._edges.append((name, node.id, "looks up", lookup_label(lookup, strategy)))

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


def lookup_label(lookup: LookupJoin, strategy: str) -> str:
    """The label of a lookup: its strategy, keys, join type and retries."""
    words = [f"{strategy} by {', '.join(lookup.keys)}", "LEFT" if lookup.left else "INNER"]
    if lookup.retry is not None:
        retry = lookup.retry
        words.append(f"{retry.max_attempts} retries, {_duration(retry.delay_ms)} apart")
    return " · ".join(words)


def _duration(ms: int) -> str:
    return f"{ms // 1000} s" if ms % 1000 == 0 else f"{ms} ms"


def _query_details(query: StreamQuery) -> tuple[str, ...]:
    words = ["GROUP BY"] if query.grouped else []
    return (*words, "COUNT(DISTINCT)") if query.distinct is not None else tuple(words)


def _details(table: TableInfo) -> tuple[str, ...]:
    """A short description of a table, without server, user or password."""
    options = table.options
    if table.connector == "view":
        return ("view",)
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
