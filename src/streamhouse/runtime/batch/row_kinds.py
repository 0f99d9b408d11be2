"""Converts the changes of a statement to row kinds, as the table's merge engine needs them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.errors import TableError
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import producer
from streamhouse.paimon.write.merge_rules.remove_record_on_delete import without_values
from streamhouse.runtime.query_operator import conformed
from streamhouse.source import of_kind
from streamhouse.sql.options.merge_functions import (
    merge_function,
    remove_option,
    removes_records,
    sequence_fields,
)
from streamhouse.sql.plan import DmlQuery

RETRACTABLE = ("sum", "last_value", "last_non_null_value")
"""Merge functions for which retracting a value and adding it again restores the same value."""
_PASS_NULLS = ("sum", "last_non_null_value")
_IDEMPOTENT = ("max", "min", "bool_and", "bool_or", "first_value", "first_non_null_value")


@dataclass(frozen=True)
class DmlStrategy:
    """How changes are written into a table.

    - `rewrites`: the table has no primary key, so all its rows are overwritten.
    - `retracts`: an update writes the old row (`-U`) before the new one.
    - `purges`: deleted rows must be compacted away at once; see decision 121.
    - `options`: table options under which the changes are written.
    - `resets`: a delete carries nulls and zeros instead of the old values.
    """

    rewrites: bool = False
    retracts: bool = True
    purges: bool = False
    resets: bool = False
    options: Mapping[str, str] = field(default_factory=dict)


def dml_strategy(table: Table, change: DmlQuery) -> DmlStrategy:
    """How to write these changes; `TableError` with the reason and a way out if that cannot be."""
    actions = set(change.actions)
    engine = table.options.get("merge-engine", "deduplicate")
    if actions == {"insert"}:
        return DmlStrategy()
    if not table.primary_key:
        options = {"dynamic-partition-overwrite": "false"}
        return DmlStrategy(rewrites=True, options=options)
    where = f"table {table.identifier}"
    if "rowkind.field" in table.options:
        raise TableError(
            f"{where} reads row kinds from its column '{table.options['rowkind.field']}' "
            "('rowkind.field'); INSERT rows with that column set instead"
        )
    if engine == "first-row":
        raise TableError(
            f"{where} keeps the first row of a key ('merge-engine' = 'first-row') and supports "
            "neither UPDATE nor DELETE; only INSERT clauses can be used"
        )
    if "delete" in actions:
        _check_delete(table, where)
    if engine == "aggregation":
        return _aggregation(table, change, where)
    if engine == "partial-update":
        return _partial_update(table, change, where)
    return DmlStrategy()


def _check_delete(table: Table, where: str) -> None:
    for key, value in table.options.items():
        if key.endswith("ignore-delete") and value.lower() == "true":
            raise TableError(f"{where} ignores deletes; set '{key}' = 'false' to delete its rows")


def _aggregation(table: Table, change: DmlQuery, where: str) -> DmlStrategy:
    functions = functions_of(table)
    if "update" in change.actions:
        for column, name in functions.items():
            _check_retract(table, change, where, column, name)
    if "delete" not in change.actions:
        return DmlStrategy()
    option, removes = _removal(table)
    irreversible = {c: f for c, f in functions.items() if f not in RETRACTABLE}
    if irreversible and not removes:
        column, name = next(iter(irreversible.items()))
        raise TableError(
            f"{where}: column '{column}' is merged by {name}, which cannot be retracted; to delete "
            f"rows, set '{option}' = 'true' on the table"
        )
    return DmlStrategy(purges=True, resets=removes, options={option: "true"})


def _removal(table: Table) -> tuple[str, bool]:
    """The table option by which a `-D` removes a record, and whether it is set."""
    option = remove_option(table.options)
    assert option is not None
    return option, removes_records(table.options)


def _check_retract(table: Table, change: DmlQuery, where: str, column: str, function: str) -> None:
    key = f"fields.{column}.ignore-retract"
    ignored = table.options.get(key, "false").lower() == "true"
    if not ignored and function in RETRACTABLE:
        return
    if ignored and function in _IDEMPOTENT and column not in change.assigned:
        return
    raise TableError(
        f"{where}: column '{column}' is merged by {function}, which cannot retract the old "
        f"value, so UPDATE is not supported; it is with {', '.join(RETRACTABLE)}"
        + (
            f" (or, if it does not set '{column}', with '{key}' = 'true')"
            if function in _IDEMPOTENT
            else ""
        )
    )


def functions_of(table: Table) -> dict[str, str]:
    """The merge function of each column outside the primary key."""
    sequence = sequence_fields(table.options)
    return {
        column.name: "last_value"
        if column.name in sequence
        else merge_function(table.options, column.name)
        for column in table.columns
        if column.name not in table.primary_key
    }


def _partial_update(table: Table, change: DmlQuery, where: str) -> DmlStrategy:
    grouped = [
        key
        for key in table.options
        if key.endswith(("sequence-group", "aggregate-function", "default-aggregate-function"))
    ]
    if grouped:
        raise TableError(
            f"{where} merges columns by '{grouped[0]}', so the result of UPDATE and DELETE would "
            "depend on earlier rows; INSERT the new values"
        )
    option, removes = _removal(table)
    if "delete" not in change.actions:
        return DmlStrategy(retracts=False)
    if not removes:
        raise TableError(
            f"{where} has 'merge-engine' = 'partial-update', which does not support deletes; set "
            f"'{option}' = 'true' on the table"
        )
    return DmlStrategy(retracts=False, purges=True, resets=True)


def kinds(table: Table, strategy: DmlStrategy, change: DmlQuery, batch: pa.Table) -> list[pa.Table]:
    """The rows to write for a batch of changes, with their row kinds, in order.

    Each `-U` directly precedes its `+U`, as writers expect
    (`paimon.write.merge_rules.before_images`).
    """
    schema = table.arrow_schema
    old, new = before(table, batch), after(table, batch)
    action = actions_of(change, batch)
    updates, deletes, inserts = (pc.equal(action, a) for a in ("update", "delete", "insert"))
    updated = conformed(new.filter(updates), schema, table.primary_key)
    _check_updates(table, change, old.filter(updates), updated)
    result = [of_kind(updated, "+U")]
    if strategy.retracts:
        replaced = of_kind(conformed(old.filter(updates), schema), "-U")
        result = [_alternating(replaced, result[0])]
    deleted = conformed(old.filter(deletes), schema)
    if strategy.resets:
        # The changelog needs the old values, which the resetting `-D` does not have.
        if producer(table.options) == "input" and strategy.retracts:
            if all(name in RETRACTABLE for name in functions_of(table).values()):
                result.append(of_kind(deleted, "-U"))
        deleted = without_values(table, deleted)
    result.append(of_kind(deleted, "-D"))
    result.append(of_kind(conformed(new.filter(inserts), schema, table.primary_key), "+I"))
    return [rows for rows in result if rows.num_rows]


def remaining(table: Table, change: DmlQuery, batch: pa.Table) -> pa.Table:
    """The rows of a batch that stay in a table that is overwritten as a whole."""
    deleted = pc.fill_null(pc.equal(actions_of(change, batch), "delete"), False)
    return conformed(after(table, batch).filter(pc.invert(deleted)), table.arrow_schema)


def actions_of(change: DmlQuery, batch: pa.Table) -> pa.Array:
    """The action for each row: insert, update, delete, or null."""
    return pc.take(pa.array(change.actions), batch.column(0).combine_chunks())


def before(table: Table, batch: pa.Table) -> pa.Table:
    """The target's rows before the change; not cast yet."""
    names = table.arrow_schema.names
    return batch.select(range(2, 2 + len(names))).rename_columns(names)


def after(table: Table, batch: pa.Table) -> pa.Table:
    """The target's rows after the change; not cast yet."""
    names = table.arrow_schema.names
    return batch.select(range(2 + len(names), 2 + 2 * len(names))).rename_columns(names)


def _check_updates(table: Table, change: DmlQuery, old: pa.Table, new: pa.Table) -> None:
    """Raise `TableError` for updates that the merge engine would ignore.

    These are nulls that it skips, and a `sequence.field` that is less than the row's present one.
    """
    engine = table.options.get("merge-engine", "deduplicate")
    functions = functions_of(table) if engine == "aggregation" else {}
    for name in change.assigned:
        function = functions.get(name, "")
        ignored = engine == "partial-update" or function in _PASS_NULLS
        if (
            ignored
            and pc.any(pc.and_(pc.is_null(new.column(name)), pc.is_valid(old.column(name)))).as_py()
        ):
            reason = function or "'merge-engine' = 'partial-update'"
            raise TableError(
                f"table {table.identifier}: '{name}' cannot be set to null, since {reason} ignores "
                "nulls; set another value, or DELETE the row"
            )
    sequence = sequence_fields(table.options)
    descending = table.options.get("sequence.field.sort-order", "ascending") == "descending"
    if set(sequence) & set(change.assigned) and _is_late(sequence, old, new, descending):
        kept, forbidden = ("least", "greater") if descending else ("greatest", "less")
        raise TableError(
            f"table {table.identifier} keeps the row with the {kept} '{', '.join(sequence)}' "
            f"('sequence.field'), so an UPDATE cannot make it {forbidden}"
        )


def _is_late(names: Sequence[str], old: pa.Table, new: pa.Table, descending: bool) -> bool:
    """Whether an updated row stands before its old one, by the sequence fields in their order.

    A null loses against every value, whatever the order, in both of Paimon's cores.
    """
    is_late, ties = pa.scalar(False), pa.scalar(True)
    for name in names:
        new_value, old_value = new.column(name), old.column(name).cast(new.field(name).type)
        earlier = pc.greater(new_value, old_value) if descending else pc.less(new_value, old_value)
        earlier = pc.and_(pc.fill_null(earlier, True), pc.is_valid(old_value))
        equal = pc.fill_null(pc.equal(new_value, old_value), False)
        equal = pc.or_(equal, pc.and_(pc.is_null(new_value), pc.is_null(old_value)))
        is_late, ties = pc.or_(is_late, pc.and_(ties, earlier)), pc.and_(ties, equal)
    return bool(pc.any(is_late).as_py())


def _alternating(first: pa.Table, second: pa.Table) -> pa.Table:
    """The rows of two tables of equal length, interleaved."""
    indices = np.arange(2 * first.num_rows).reshape(2, -1).T.ravel()
    return pa.concat_tables([first, second]).combine_chunks().take(pa.array(indices))
