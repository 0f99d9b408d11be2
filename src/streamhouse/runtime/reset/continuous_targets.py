"""Finds the tables that a script's continuous queries write, without running the script.

The whole script is planned with a `DraftSession`, so an error anywhere in it is raised before any
of its statements runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from streamhouse.connectors import registry
from streamhouse.errors import StreamhouseError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.batch.insert_columns import given_columns
from streamhouse.runtime.session.ddl import change_session, located
from streamhouse.runtime.session.dry_run import DraftSession
from streamhouse.runtime.state.checkpoint import checkpoints_of
from streamhouse.sql import syntax
from streamhouse.sql.plan import TableInfo
from streamhouse.sql.streaming.query_planner import is_bounded, plan_stream_queries


@dataclass(frozen=True)
class CheckpointLocation:
    """The location of a pipeline's checkpoints: the folder `root` and the pipeline's name."""

    root: Path
    pipeline: str

    @classmethod
    def of(
        cls, settings: Mapping[str, str], name: str, root: Path | None, target: TableAddress
    ) -> CheckpointLocation:
        """The location of the checkpoint of a query that writes `target`.

        `name` is the pipeline's name if the script's `settings` have none; `root` None: in the
        warehouse.
        """
        where = root or checkpoints_of(target.warehouse["warehouse"])
        return cls(where, settings.get("pipeline.name", name))


@dataclass
class ContinuousTarget:
    """A table that continuous queries write.

    `locations` are those of their checkpoints, several if the script changes `pipeline.name`
    between them. `readers` are the tables that they read with a `consumer-id`, each with that id.
    """

    address: TableAddress
    locations: list[CheckpointLocation] = field(default_factory=list)
    readers: list[tuple[TableAddress, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Targets:
    """All targets of a script, and the options of all its catalogs."""

    targets: tuple[ContinuousTarget, ...]
    catalogs: tuple[Mapping[str, str], ...]


def continuous_targets(
    statements: Sequence[syntax.Statement],
    files: Sequence[str],
    warehouse: Mapping[str, str] | None,
    name: str,
    root: Path | None,
) -> Targets:
    """Plan a script and return the targets of its continuous queries.

    `files` names the file of each statement, if the script has several files. `warehouse`, `name`
    and `root` (the checkpoints) are as in `ScriptOptions`. Raises the errors that running the
    script would raise: `SqlError`, `TableError`, `OptionError`, with line and column.
    """
    draft = DraftSession(warehouse, requires_warehouse=True)
    # The run itself prints the notices.
    draft.notice = lambda text: None
    finder = _Finder(draft, name, root)
    for number, statement in enumerate(statements):
        try:
            with located(statement):
                finder.take(statement)
        except StreamhouseError as error:
            if files:
                error.within(files[number])
            raise
    return Targets(
        tuple(finder.targets.values()),
        tuple(draft.catalogs.options(name) for name in draft.catalogs.names()),
    )


class _Finder:
    """Collects the targets of the continuous queries while a script is planned."""

    def __init__(self, draft: DraftSession, name: str, root: Path | None) -> None:
        self._draft = draft
        self._name = name
        self._root = root
        self.targets: dict[str, ContinuousTarget] = {}

    def take(self, statement: syntax.Statement) -> None:
        if change_session(self._draft, statement):
            return
        match statement:
            case syntax.StatementSet():
                for insert in statement.inserts:
                    self._insert(insert)
            case syntax.Insert():
                self._insert(statement)

    def _insert(self, statement: syntax.Insert) -> None:
        draft = self._draft
        if not draft.settings.streaming or is_bounded(statement.query, draft):
            return
        target = draft.table(statement.target)
        registry.check_sink(target, statement.position)
        columns = given_columns(target, statement)
        queries = plan_stream_queries(statement.query, draft, target, columns, statement.partition)
        address = (
            self._address(target)
            if target.connector == "paimon"
            else draft.endpoints.target(target)
        )
        if not address.warehouse and self._root is None:
            # Its checkpoint is temporary, so there is nothing to reset.
            return
        continuous = self.targets.setdefault(repr(address), ContinuousTarget(address))
        location = CheckpointLocation.of(draft.settings, self._name, self._root, address)
        if location not in continuous.locations:
            continuous.locations.append(location)
        for query in queries:
            consumer = query.source_options.get("consumer-id")
            if query.source.connector == "paimon" and consumer is not None:
                continuous.readers.append((self._address(query.source), consumer))

    def _address(self, table: TableInfo) -> TableAddress:
        catalog, database, name = table.name
        return TableAddress(self._draft.catalogs.options(catalog), f"{database}.{name}")


def checkpoint_roots(
    statements: Sequence[syntax.Statement], warehouse: Mapping[str, str] | None, root: Path | None
) -> Iterator[Path]:
    """The folders in which a script may have checkpoints, found without planning it."""
    if root is not None:
        yield root
        return
    initial = [warehouse] if warehouse is not None else []
    created = [
        statement.options for statement in statements if isinstance(statement, syntax.CreateCatalog)
    ]
    for options in (*initial, *created):
        path = options.get("warehouse")
        if path:
            yield checkpoints_of(path)
