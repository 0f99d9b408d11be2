"""Notices at the first start of a query: what its target's rows depend on."""

from __future__ import annotations

from streamhouse.connectors.specs import SourceSpec
from streamhouse.paimon.changelog.commit_order import (
    follows_commits,
    has_compacted_files,
    has_several_buckets,
)
from streamhouse.paimon.changelog.scan_options import ScanOptions
from streamhouse.runtime.query_spec import QuerySpec

_FULL_READS = ("full", "snapshot-full")


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

    See `streamhouse.sql.streaming.key_moves`.
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
