"""Partitions of a Java table: their values as text, and the expiry of old ones.

The Java core's own expiry passes values as one text with commas: a value with a comma, or a null,
names another partition. It also knows a DATE by its number of days only, which is no time to it.
"""

import datetime
import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from py4j.protocol import Py4JJavaError

from streamhouse.paimon.storage.snapshots import EXPIRY_USER

_LOG = logging.getLogger("streamhouse.maintenance")
Spec = Mapping[str, str | None]
"""Partition columns and their values as text; None is null."""
_BY_VALUES = "values-time"


def spec_of(jvm: Any, java: Any, row: Any) -> Spec:
    """A partition's values as text; dates in the form `2026-01-31`."""
    keys = list(java.partitionKeys())
    if not keys:
        return {}
    computer = jvm.org.apache.paimon.utils.InternalRowPartitionComputer(
        null_name(java), java.schema().logicalPartitionType(), java_strings(jvm, keys), False
    )
    values = dict(computer.generatePartValues(row))
    blank = null_name(java)
    # The core also writes the name of null for a blank text.
    return {
        key: None if row.isNullAt(place) else str(values[key]) if values[key] != blank
        else str(row.getString(place).toString())
        for place, key in enumerate(keys)
    }  # fmt: skip


def java_spec(jvm: Any, java: Any, spec: Spec) -> Any:
    """A partition as the core's commits take it."""
    values = jvm.java.util.LinkedHashMap()
    for key, value in spec.items():
        values.put(key, null_name(java) if value is None else value)
    return values


def null_name(java: Any) -> str:
    """The name of the folder of the partition whose value is null."""
    return str(java.coreOptions().partitionDefaultName())


def spec_text(spec: Spec) -> str:
    """`dt=2026-01-31,hh=08`; a null is `NULL`."""
    return ",".join(f"{key}={'NULL' if value is None else value}" for key, value in spec.items())


def expire_partitions(jvm: Any, java: Any) -> list[Spec]:
    """Drop the partitions that are too old by the table's options; returns them.

    The caller holds the table's commit lock.
    """
    options = java.coreOptions()
    retained = options.partitionExpireTime()
    if retained is None or not java.partitionKeys():
        return []
    before = jvm.java.time.LocalDateTime.now().minus(retained)
    specs = sorted(
        (spec_of(jvm, java, entry.partition()) for entry in _expired(jvm, java, before)),
        key=spec_text,
    )[: int(options.partitionExpireMaxNum())]
    size = int(options.partitionExpireBatchSize()) or len(specs)
    identifier = int(java.snapshotManager().latestSnapshotId() or 0) + 1
    with closing(java.store().newCommit(EXPIRY_USER, java)) as commit:
        for first in range(0, len(specs), max(size, 1)):
            some = specs[first : first + size]
            commit.dropPartitions([java_spec(jvm, java, spec) for spec in some], identifier)
    return list(specs)


def _expired(jvm: Any, java: Any, before: Any) -> list[Any]:
    """The core's entries of the partitions that are older than the Java time `before`."""
    options, scan = java.coreOptions(), java.store().newScan()
    if options.partitionExpireStrategy() != _BY_VALUES:
        environment = java.catalogEnvironment()
        strategy = jvm.org.apache.paimon.partition.PartitionExpireStrategy
        chosen = strategy.createPartitionExpireStrategy(
            options, java.store().partitionType(), environment.catalogLoader(),
            environment.identifier(),
        )  # fmt: skip
        return list(chosen.selectExpiredPartitions(scan, before))
    extractor = jvm.org.apache.paimon.partition.PartitionTimeExtractor
    pattern, formatter = options.partitionTimestampPattern(), options.partitionTimestampFormatter()
    by_option = extractor(pattern, formatter)
    # The text of a DATE or TIMESTAMP has a form of its own.
    kinds = [str(kind) for kind in java.store().partitionType().getFieldTypes()]
    typed = any(kind.startswith(("DATE", "TIMESTAMP")) for kind in kinds)
    extractors = [by_option, extractor(pattern, None)] if typed else [by_option]
    found = []
    for entry in scan.readPartitionEntries():
        time = _time_of(spec_of(jvm, java, entry.partition()), extractors)
        if time is not None and before.isAfter(time):
            found.append(entry)
    return found


def _time_of(spec: Spec, extractors: Sequence[Any]) -> Any | None:
    """The Java time of a partition; None if its values are no time."""
    values = {key: _parsable(value) for key, value in spec.items() if value is not None}
    for extractor in extractors:
        try:
            return extractor.extract(list(values), list(values.values()))
        except Py4JJavaError:
            continue
    _LOG.warning("partition %s: no time, so it does not expire", spec_text(spec))
    return None


def _parsable(value: str) -> str:
    """`2026-01-31T08:00` as `2026-01-31 08:00:00`."""
    try:
        found = datetime.datetime.fromisoformat(value) if "T" in value else None
    except ValueError:
        return value
    return value if found is None else found.isoformat(" ", "seconds")


def java_strings(jvm: Any, values: Sequence[str]) -> Any:
    """A Java array of strings."""
    array = jvm.java.lang.reflect.Array
    strings = array.newInstance(jvm.java.lang.Class.forName("java.lang.String"), len(values))
    for index, value in enumerate(values):
        array.set(strings, index, value)
    return strings
