"""Checks that a continuous query may start: that its checkpoint belongs to its tables as they are.

A query that resumes must give the rows that it has read the results that it gave before, or a later
update would retract other values than were added. A query that is new must not add rows that are in
its target already (decision 230).
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from streamhouse.connectors.specs import SourceSpec
from streamhouse.errors import DataLossError, SchemaChangeError, StreamhouseError, TableError
from streamhouse.operators.planning.closed_windows import CHANGED_SELECT
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.changelog.consumers import QUERY, Consumers, is_orphaned
from streamhouse.paimon.changelog.scan_options import ScanOptions
from streamhouse.paimon.changelog.snapshot_units import (
    follows_commits,
    has_compacted_files,
    has_several_buckets,
)
from streamhouse.paimon.schema.table_name import split_identifier
from streamhouse.paimon.storage.table_identity import Identity
from streamhouse.paimon.write.table_writer import query_tag
from streamhouse.runtime.audit.recompute import same_results
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.state.checkpoint import (
    Checkpoint,
    checkpoints_for,
    former_ids,
    pipeline_of,
)
from streamhouse.runtime.state.recorded_query import BoundTables, definition_json, spec_of
from streamhouse.runtime.state.table_writers import (
    StreamingWriter,
    has_rows,
    lineage_definitions,
    other_writers,
    since_empty,
    was_emptied,
)
from streamhouse.runtime.statements.result_view import result_name
from streamhouse.runtime.views.spec import ViewSpec
from streamhouse.source import Offset
from streamhouse.sql.views.stored_view import APPENDED, StoredView

Notice = Callable[[str], None]
_RESULT = "result"
_ANEW = "run the script once with --from-scratch to compute its targets anew"
_FULL_READS = ("full", "snapshot-full")


def check_start(spec: QuerySpec, checkpoint: Checkpoint, notice: Notice) -> None:
    """Raise `StreamhouseError` if the query must not start; `notice` says what it adapts to.

    `spec` has the id of the checkpoint, which is locked.
    """
    if checkpoint.logs.last_logged() < 0:
        _check_new(spec, checkpoint, notice)
        first = unordered_first_read(spec) or shared_keys(spec)
        if first is not None:
            notice(first)
        return
    before = checkpoint.previous() or {}
    if before.get("id") != spec.query_id or "tables" not in before:
        raise DataLossError(
            f"{checkpoint.path} does not say which tables its batches belong to: 'query.json' or "
            f"'metadata' is missing, or of another query. Put both back, or {_ANEW}"
        )
    _check_resumed(spec, checkpoint, before, notice)


def _check_resumed(
    spec: QuerySpec, checkpoint: Checkpoint, before: dict[str, Any], notice: Notice
) -> None:
    then, now = BoundTables.parse(before["tables"]), BoundTables.of(spec)
    name = spec.target.identifier
    if then.target.identity != now.target.identity:
        raise DataLossError(
            f"{name} is not the table that the query in {checkpoint.path} has written: it was "
            "dropped and created again, or declared in another place. The rows written so far are "
            f"not in it, and would not be written again; {_ANEW}"
        )
    if spec.sink is None:
        _check_emptied(spec, notice)
    unfinished = checkpoint.logs.unfinished()
    recreated = now.recreated_lookups(then)
    if recreated and (spec.query.scan.changelog or unfinished):
        raise DataLossError(
            f"the lookup table {', '.join(recreated)} was dropped and created again since the "
            f"query that writes {name} has run: an update would retract other values than were "
            f"added; {_ANEW}"
        )
    for table in recreated:
        notice(f"{name}: the lookup table {table} was created again, and is used as it is now")
    changes, other_select = now.rebound(then), before["fingerprint"] != spec.query.fingerprint
    if changes or (other_select and spec.query.merging.signed):
        reasons = changes or ["its SELECT has changed"]
        ends = [checkpoint.logs.last_offset(), *unfinished]
        _check_results(spec, before["definition"], [end for end in ends if end], reasons)
        notice(
            f"{name}: {'; '.join(reasons)}. The query goes on: the rows that it has read give the "
            "same results as before"
        )
    elif other_select:
        notice(
            f"the SELECT of {name} in pipeline '{checkpoint.pipeline}' has changed; it goes on "
            "where the old one stopped, and rows written so far stay. To compute all of them anew, "
            "run the script once with --from-scratch"
        )


def check_appending(spec: ViewSpec, checkpoint: Checkpoint, notice: Notice) -> None:
    """As `check_start`, for a query that appends a result to a table without a key.

    Another SELECT goes on if it returns windows, each once. Else the rows that it would have added
    before are not known.
    """
    name, newest = spec.target.identifier, checkpoint.logs.newest()
    if not newest:
        own = _own_ids(spec, checkpoint)
        streams = other_writers(spec.target, own).streams
        same = (each for each in streams if _is_orphaned(each) or _has_result(spec, each))
        for writer in (*same, *_lost_writers(spec, own)):
            raise _doubled(name, writer)
        return
    fingerprint, table = newest.get("view", "? ?").split()
    same = fingerprint == spec.fingerprint
    known = (checkpoint.previous() or {}).get("id") == spec.query_id
    is_table = table == Identity(spec.target.open()).digest
    if not (known and is_table and (same or spec.plan.windows is not None)):
        raise DataLossError(
            f"the query in {checkpoint.path} has appended the result of another SELECT, or to "
            f"another table: its SELECT has changed, or {name} or a table of the SELECT was "
            f"dropped and created again. The rows written so far may be wrong or missing; {_ANEW}"
        )
    _check_emptied(spec, notice)
    if not same:
        notice(f"{name}: {CHANGED_SELECT}")


def _lost_writers(spec: ViewSpec, own: set[str]) -> Iterator[str]:
    """Queries that have neither a lineage nor a consumer: their checkpoints were deleted.

    The names of their data files have a batch and an attempt; statements have no attempts.
    """
    table = spec.target.open()
    known = {*own, *lineage_definitions(spec.target)}
    known |= {each.id.removeprefix(QUERY) for each in Consumers(table).all()}
    for snapshot in since_empty(table):
        user, before = snapshot.commit_user, snapshot.id - 1
        if snapshot.commit_kind == "APPEND" and user not in known:
            known.add(user)
            named = re.compile(rf"{query_tag(user)}-b\d+-[0-9a-f]{{12}}-".encode())
            if any(map(named.search, table.changes(before, snapshot.id))):
                yield f"the query {user}, whose checkpoint is gone"


def _has_result(spec: ViewSpec, writer: StreamingWriter) -> bool:
    """Whether a writer appends the same result; known on the machine of its checkpoint."""
    if writer.consumer is None or writer.consumer.checkpoint is None:
        return False
    path = Path(writer.consumer.checkpoint)
    record = Checkpoint(path.parents[1], pipeline_of(path), path.name).previous()
    return record is not None and _appended(record["definition"]) == _appended(spec.definition)


def _appended(definition: str) -> str:
    """The SELECT of an appended result, without the pipeline in the names of its input tables."""
    return re.sub(r"__view_\w+__in_", "__in_", json.dumps(json.loads(definition).get("select")))


def _own_ids(spec: QuerySpec | ViewSpec, checkpoint: Checkpoint) -> set[str]:
    """The ids of a query, and of all queries of its pipeline that have written its target."""
    root, own = checkpoint.path.parent.parent, {spec.query_id}
    for other in checkpoints_for(root, checkpoint.pipeline, spec.target.identifier):
        own |= {*former_ids(other.path), *filter(None, [other.known_id()])}
    return own


def _check_emptied(spec: QuerySpec | ViewSpec, notice: Notice) -> None:
    """Raise `DataLossError` if a statement removed rows of the target that may be retracted."""
    name = spec.target.identifier
    if not was_emptied(spec.target.open(), spec.query_id):
        return
    if isinstance(spec, QuerySpec) and spec.query.merging.signed:
        raise DataLossError(
            f"all rows of {name} were removed since its query has written it, and later updates "
            f"would retract values that are gone; {_ANEW}"
        )
    notice(
        f"{name}: all rows were removed since its query has written it; those that it wrote before "
        f"stay removed. To write them again, {_ANEW}"
    )


def _check_results(
    spec: QuerySpec, definition: str, ends: list[Offset], changes: list[str]
) -> None:
    """Raise `SchemaChangeError` if the rows read up to one of `ends` give other results now."""
    reason = "for rows that it has read, it would give other results than before"
    if spec.source_tables and not any(lookup.on_server for lookup in spec.query.lookups):
        former = spec_of(definition, spec.target, spec.query_id)
        try:
            if all(same_results(former, spec, end) for end in ends):
                return
        except StreamhouseError as error:
            reason = f"the rows that it has read cannot be compared ({error})"
    raise SchemaChangeError(
        f"the query that writes {spec.target.identifier} cannot resume: {'; '.join(changes)}; and "
        f"{reason}. Use what it has used so far, or {_ANEW}"
    )


def _check_new(spec: QuerySpec, checkpoint: Checkpoint, notice: Notice) -> None:
    """Check that the rows of a new query are not in its target yet, from a former query."""
    if spec.sink is not None:
        return
    name = spec.target.identifier
    for writer in other_writers(spec.target, _own_ids(spec, checkpoint)).streams:
        definition = None if writer.definition is None else json.loads(writer.definition)
        if definition is None:
            if _is_orphaned(writer):
                raise _doubled(name, writer)
            continue
        source = _source(definition, spec.target)
        if source != _source(json.loads(definition_json(spec)), spec.target):
            continue
        if _continues_from_consumer(spec):
            continue
        same = definition["query"]["fingerprint"] == spec.query.fingerprint
        if same or source[0] == _RESULT or _is_orphaned(writer):
            raise _doubled(name, writer)
        notice(
            f"table {name} also has rows of {writer}, which reads the same table, and gets those "
            f"of a new query in addition. If this one replaces it, TRUNCATE TABLE {name} first"
        )
    _note_present_rows(spec, notice)


def _note_present_rows(spec: QuerySpec, notice: Notice) -> None:
    """Say that rows of a copy stay of which the source, such as MySQL, has no change to read."""
    table, source = spec.target.open(), spec.source
    copies = spec.query.row_kinds and bool(table.primary_key)
    if not copies or source.address is not None or not has_rows(table):
        return
    name = spec.target.identifier
    notice(
        f"{name} has rows already: those of {'.'.join(spec.query.source.name[-2:])} are written "
        f"over them, and rows that it does not have stay, also if it deleted them since they were "
        f"written. To start without them, TRUNCATE TABLE {name} first"
    )


def _continues_from_consumer(spec: QuerySpec) -> bool:
    """Whether a new query begins where the reader of its `consumer-id` has stopped."""
    source = spec.source
    consumer = source.options.get("consumer-id")
    if consumer is None or source.address is None:
        return False
    return Consumers(source.address.open()).get(consumer) is not None


def _doubled(name: str, writer: object) -> StreamhouseError:
    return StreamhouseError(
        f"table {name} has the rows of {writer}, which a new query would write again. To go on "
        "where that one stopped, SET 'pipeline.name' to its pipeline, and put its checkpoint back "
        f"if it was deleted; to compute the table anew, TRUNCATE TABLE {name} first"
    )


def _is_orphaned(writer: StreamingWriter) -> bool:
    """Whether a query's checkpoint was deleted."""
    return writer.consumer is not None and is_orphaned(writer.consumer)


def _source(definition: Mapping[str, Any], target: TableAddress) -> tuple[Any, ...]:
    """The table that a query reads; if it has the result of a SELECT for `target`, the SELECT.

    Each pipeline has such a table, and tables that the SELECT reads, with names of its own.
    """
    source = definition["source"]
    name = source["table"] or ".".join(definition["query"]["scan"]["table"]["name"][-2:])
    prefix = ".".join(result_name(("", *split_identifier(target.identifier)), "view")[1:])
    if name.startswith(prefix):
        with suppress(TableError):
            options = TableAddress(target.warehouse, name).open().options
            view = StoredView.of(options)
            select = options.get(APPENDED) if view is None else view.query
            if select is not None:
                return _RESULT, select.replace(name.removeprefix(prefix), "")
    return source["connector"], name, definition["warehouses"]["source"]


def unordered_first_read(spec: QuerySpec) -> str | None:
    """A notice if stored rows depend on an order of commits that the first read loses; else None.

    They depend on it if the target has a key, no sequence field, and a merge function that depends
    on the order.
    """
    if spec.sink is not None or not _depends_on_order(spec):
        return None
    source = spec.source
    if source.address is None or not _mixes_commits(spec, source):
        return None
    return (
        f"the first read of {source.address.identifier} follows its files, because not all of its "
        f"commits can be read one by one: of several rows with one key of {spec.target.identifier},"
        f" the row of an older commit may be merged last; give {spec.target.identifier} a "
        "'sequence.field' if this matters"
    )


def _depends_on_order(spec: QuerySpec) -> bool:
    target = spec.target.planned()
    if not target.primary_key or spec.combine() is not None:
        return False
    return not any(key.endswith("sequence.field") for key in target.options)


def _mixes_commits(spec: QuerySpec, source: SourceSpec) -> bool:
    """Whether a row of an older commit may follow one of a newer commit with the same key."""
    assert source.address is not None
    table = source.address.planned()
    scan = ScanOptions.parse(source.options, f"table {table.identifier}")
    latest = table.latest_snapshot_id()
    if table.primary_key or scan.start not in _FULL_READS or latest is None:
        return False
    snapshot = latest if scan.snapshot_id is None else scan.snapshot_id
    one_commit = scan.start == "full" and snapshot == 1
    if one_commit or follows_commits(table, scan, snapshot, lambda: table.splits(snapshot)):
        return False
    passed = {spec.query.rows.passed.get(name) for name in spec.target.planned().primary_key}
    one_bucket_per_key = table.bucket <= 1 and set(table.partition_keys) <= passed
    if has_several_buckets(table) and not one_bucket_per_key:
        return True
    return has_compacted_files(table.splits(snapshot))


def shared_keys(spec: QuerySpec) -> str | None:
    """A notice if rows of the source with different keys may have one key of the target; else None.

    See `streamhouse.sql.streaming.changing_rows`.
    """
    if not spec.query.reorder_key:
        return None
    sink = spec.sink
    key = ", ".join(spec.target.planned().primary_key if sink is None else sink.primary_key)
    source, target = ".".join(spec.query.source.name[-2:]), spec.target.identifier
    return (
        f"the key of {target} ({key}) does not include the key of {source} "
        f"({', '.join(spec.query.reorder_key)}), so several rows of {source} could have one key of "
        f"{target}: the last change of the key counts, and if its row goes, the others are not "
        f"written again. Make sure that ({key}) is unique in {source}"
    )
