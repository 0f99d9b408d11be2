"""Finds the tables that a script's continuous queries write, without running the script.

The whole script is planned with a `DraftSession`, so an error anywhere in it is raised before any
of its statements runs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.session.dry_run import DraftSession
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.state.checkpoint import VIEWS, Checkpoint, checkpoints_of
from streamhouse.runtime.statements.script_plan import held_notices, plan_script
from streamhouse.runtime.statements.steps import Step
from streamhouse.sql import syntax
from streamhouse.sql.plan import TableInfo
from streamhouse.sql.views.statement import CreateMaterializedView


def target_checkpoint(session: Session, root: Path | None, target: TableAddress) -> Checkpoint:
    """The checkpoint with the name of a target; `root` None: in the warehouse."""
    where = root or checkpoints_of(target.warehouse["warehouse"])
    return Checkpoint(where, session.pipeline_name, target.identifier)


@dataclass
class ContinuousTarget:
    """A table that continuous queries write.

    `checkpoints` are those with its name, several if the script changes `pipeline.name` between
    the queries. `readers` are the tables that they read with a `consumer-id`, each with that id.
    """

    address: TableAddress
    checkpoints: list[Checkpoint] = field(default_factory=list)
    readers: list[tuple[TableAddress, str]] = field(default_factory=list)


@dataclass(frozen=True)
class ScriptTargets:
    """All targets of a script, and the options of all its catalogs."""

    targets: tuple[ContinuousTarget, ...]
    catalogs: tuple[Mapping[str, str], ...]


def continuous_targets(
    statements: Sequence[syntax.Statement],
    files: Sequence[str],
    warehouse: Mapping[str, str] | None,
    name: str,
    root: Path | None,
    notice: Callable[[str], None] = lambda text: None,
) -> ScriptTargets:
    """Plan a script and return the targets of its continuous queries.

    `files` names the file of each statement, if the script has several files. `warehouse`, `name`
    and `root` (the checkpoints) are as in `ScriptOptions`. If it fails, `notice` gets the notices
    of the statements before. Raises the errors that running the
    script would raise: `SqlError`, `TableError`, `OptionError`, with line and column.
    """
    draft = DraftSession(warehouse, requires_warehouse=True)
    draft.pipeline = name
    targets: dict[str, ContinuousTarget] = {}
    with held_notices(draft, notice):
        for planned in plan_script(draft, statements, files):
            own_view = isinstance(planned.statement, CreateMaterializedView)
            # The next refresh of a view writes what differs.
            kept = planned.view is not None and not own_view
            if planned.target is not None and (planned.queries or kept):
                _collect(targets, draft, planned, planned.target, root)
    return ScriptTargets(
        tuple(targets.values()),
        tuple(draft.catalogs.options(catalog) for catalog in draft.catalogs.names()),
    )


def _collect(
    targets: dict[str, ContinuousTarget],
    draft: DraftSession,
    planned: Step,
    target: TableInfo,
    root: Path | None,
) -> None:
    """Add the target of an INSERT."""
    is_table = target.connector == "paimon"
    address = _address(draft, target) if is_table else draft.target(target)
    if draft.catalogs.is_temporary(address.warehouse) or (not address.warehouse and root is None):
        # Its checkpoint is temporary, so there is nothing to reset.
        return
    continuous = targets.setdefault(repr(address), ContinuousTarget(address))
    checkpoint = target_checkpoint(draft, root, address)
    if planned.view is not None and not planned.view.keyless:
        checkpoint = Checkpoint(checkpoint.root, VIEWS, address.identifier)
    if all(each.path != checkpoint.path for each in continuous.checkpoints):
        continuous.checkpoints.append(checkpoint)
    for query in planned.queries:
        consumer = query.scan.options.get("consumer-id")
        if query.source.connector == "paimon" and consumer is not None:
            continuous.readers.append((_address(draft, query.source), consumer))


def _address(draft: DraftSession, table: TableInfo) -> TableAddress:
    catalog, database, name = table.name
    return TableAddress(draft.catalogs.options(catalog), f"{database}.{name}")


def checkpoint_roots(
    statements: Sequence[syntax.Statement], warehouse: Mapping[str, str] | None, root: Path | None
) -> Iterator[Path]:
    """The folders in which a script may have checkpoints, found without planning it."""
    if root is not None:
        yield root
        return
    created = [one.options for one in statements if isinstance(one, syntax.CreateCatalog)]
    for options in (warehouse or {}, *created):
        if path := options.get("warehouse"):
            yield checkpoints_of(path)
