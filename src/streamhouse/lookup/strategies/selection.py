"""Selects the strategy of a lookup join: by a hint, by an option, or else by a rule."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from streamhouse.errors import OptionError
from streamhouse.lookup.dimension import CAST_OTHER, DimensionSpec
from streamhouse.lookup.options import CacheOptions, RefreshRule, size_text
from streamhouse.lookup.storage.bucket_key import BucketKey, bucket_key
from streamhouse.lookup.strategies.full import FullDimension
from streamhouse.lookup.strategies.partial import PartialDimension
from streamhouse.lookup.strategies.table_dimension import TableDimension
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.write.buckets import BucketRefusal
from streamhouse.sql.plan import LookupJoin

FULL, PARTIAL, BUCKET, SHUFFLE = "full", "partial", "bucket", "shuffle"
SERVER = "server"
_TEXT_BYTES = 24
_OTHER_BYTES = 64


@dataclass(frozen=True)
class Choice:
    """A strategy (`full`, `partial`, `bucket`, `server`), and as text why it is selected.

    `buckets` is the number of buckets by which rows are shuffled, 0 for other strategies.
    """

    strategy: str
    reason: str
    buckets: int = 0

    def __str__(self) -> str:
        return f"{DISPLAY_NAMES[self.strategy]} ({self.reason})"


IN_ORDER = "a single task keeps rows that wait for a lookup in order"
"""Why a query is not shuffled although a hint requests it; no error, as the result is the same."""

DISPLAY_NAMES = {
    FULL: "full cache",
    PARTIAL: "partial by primary key",
    BUCKET: "bucket shuffle",
    SERVER: "by key from MySQL",
}
"""The display name of each strategy."""


def choose_all(specs: Sequence[DimensionSpec], unshuffled: str | None = None) -> list[Choice]:
    """The strategy of each lookup of a query; at most one is `bucket`.

    `unshuffled` is why the rows of the query cannot be shuffled; None if they can. Raises as
    `choose`.
    """
    hinted = next(
        (other.address.identifier for other in specs if other.lookup.strategy == BUCKET), None
    )
    choices: list[Choice] = []
    for spec in specs:
        problem = unshuffled
        if any(choice.strategy == BUCKET for choice in choices):
            problem = "another lookup of the query is shuffled"
        elif problem is None and hinted is not None and spec.lookup.strategy != BUCKET:
            problem = f"the hint for {hinted} requests the shuffle"
        choices.append(choose(spec, problem))
    return choices


def choose(spec: DimensionSpec, unshuffled: str | None = None) -> Choice:
    """The strategy of a lookup; driver, when its query starts.

    `unshuffled` is why it cannot be `bucket`; None if it can. Raises `OptionError` if a hint or
    option requires one that the table or the join does not allow; the message says what to change.
    """
    if spec.lookup.on_server:
        return _of_server(spec.lookup)
    table, hinted = spec.address.follow(), spec.lookup.strategy
    options = CacheOptions.parse(table.options, spec.lookup.options)
    if hinted in (FULL, PARTIAL):
        return _chosen_explicitly(
            spec, table, hinted, f"hint LOOKUP: strategy '{hinted}'", "set by hint"
        )
    key = bucket_key(spec, table) if unshuffled is None else BucketRefusal(unshuffled)
    if hinted in (BUCKET, SHUFFLE) and isinstance(key, BucketKey):
        return Choice(BUCKET, "set by hint", key.buckets)
    if hinted == BUCKET and unshuffled != IN_ORDER:
        raise OptionError(
            "hint LOOKUP: strategy 'bucket' cannot be used for table "
            f"{spec.address.identifier}: {key}; leave it out, or use 'full' or 'partial'"
        )
    if options.cache != "AUTO":
        strategy = PARTIAL if options.cache == "PARTIAL" else FULL
        where = f"'lookup.cache' = '{options.cache}'"
        return _chosen_explicitly(spec, table, strategy, where, f"set by {where}")
    choice = _by_rule(spec, table, options, key)
    if hinted in (BUCKET, SHUFFLE):
        return replace(choice, reason=f"{choice.reason}; not shuffled: {key}")
    return choice


def open_dimension(spec: DimensionSpec, choice: Choice) -> TableDimension:
    """Open a Paimon table in one process with the selected strategy; executors."""
    options = CacheOptions.parse(spec.address.follow().options, spec.lookup.options)
    if choice.strategy == PARTIAL:
        return PartialDimension(spec, options)
    return FullDimension(spec, options, choice.buckets)


def refresh_rule(lookup: LookupJoin, choice: Choice) -> RefreshRule:
    """When batches join newer versions of a lookup's table; raises as `RefreshRule.of`.

    Other strategies load nothing in advance, so nothing in the background.
    """
    rule = RefreshRule.of(lookup)
    if choice.strategy in (FULL, BUCKET):
        return rule
    return replace(rule, behind=0, behind_partitions=0)


def not_by_key(spec: DimensionSpec, table: Table) -> str | None:
    """Why a table cannot be looked up by its primary key; None if it can."""
    key = ", ".join(table.primary_key)
    if not key:
        return f"table {spec.address.identifier} has no primary key"
    if set(table.primary_key) <= set(spec.lookup.key_columns):
        return None
    other = [name for name in spec.lookup.keys if name not in spec.lookup.key_columns]
    if set(table.primary_key) & set(other):
        names = ", ".join(name for name in table.primary_key if name in other)
        return f"{names} is compared as another type; {CAST_OTHER}"
    return f"the join compares {', '.join(spec.lookup.keys)}, not the whole primary key ({key})"


def _of_server(lookup: LookupJoin) -> Choice:
    name = lookup.table.name[-1]
    if lookup.strategy in (FULL, BUCKET):
        raise OptionError(
            f"hint LOOKUP: strategy '{lookup.strategy}' cannot be used for table {name} of "
            "connector 'jdbc', whose keys are looked up in MySQL; leave it out, or replicate the "
            "table to Paimon (connector 'mysql-cdc') and look up the copy"
        )
    from streamhouse.lookup.strategies.server_lookup import options_of

    options = options_of(lookup)
    if lookup.keys_sql is None:
        raise OptionError(
            f"lookup of {name}: the join compares {', '.join(lookup.keys)} as another type, by "
            f"which MySQL cannot look up keys; {CAST_OTHER}"
        )
    return Choice(SERVER, options.describe())


def _chosen_explicitly(
    spec: DimensionSpec, table: Table, strategy: str, where: str, reason: str
) -> Choice:
    problem = not_by_key(spec, table) if strategy == PARTIAL else None
    if problem is not None:
        raise OptionError(f"{where} needs the whole primary key: {problem}; or use 'full'")
    return Choice(strategy, reason)


def _by_rule(
    spec: DimensionSpec, table: Table, options: CacheOptions, key: BucketKey | BucketRefusal
) -> Choice:
    latest = table.latest_snapshot_id()
    rows = 0 if latest is None else table.snapshot(latest).total_record_count or 0
    size = rows * row_bytes(table, spec.lookup.columns)
    limit = f"lookup.cache-max-memory-size, {size_text(options.memory)}"
    needed = f"{rows:,} rows, about {size_text(size)},"
    if size <= options.memory:
        return Choice(FULL, f"{needed} are within {limit}")
    problem = not_by_key(spec, table)
    if problem is None:
        return Choice(PARTIAL, f"{needed} are more than {limit}")
    if isinstance(key, BucketKey):
        return Choice(BUCKET, f"{needed} are more than {limit}, and {problem}", key.buckets)
    return Choice(FULL, f"on local disk: {needed} are more than {limit}, and {problem}")


def row_bytes(table: Table, columns: tuple[str, ...]) -> int:
    """About how much memory a row of these columns takes."""
    return 8 + sum(
        _value_bytes(table.arrow_schema.field(name).type)
        for name in columns
        if name in table.arrow_schema.names
    )


def _value_bytes(data_type: pa.DataType) -> int:
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        return _TEXT_BYTES
    if pa.types.is_nested(data_type):
        return _OTHER_BYTES
    return int(max(8, data_type.bit_width)) // 8
