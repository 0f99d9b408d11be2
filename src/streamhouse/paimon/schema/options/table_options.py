"""The options that Paimon 1.4 and its Flink connector know for a table, and their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError
from streamhouse.options import boolean, choice, duration_ms, integer, memory_bytes
from streamhouse.sql.options.renamed_options import dropped_option

_STATS = "none | counts | full | truncate(<length>)"
_BY_TYPE = {
    "STRING": """
        blob-descriptor-field blob-external-storage-field blob-external-storage-path blob-field
        branch bucket bucket-key chain-table.chain-partition-keys changelog-file.prefix
        changelog-producer.row-deduplicate-ignore-fields clustering.columns clustering.strategy
        commit.callbacks commit.user-prefix consumer-id data-file.external-paths
        data-file.external-paths.specific-fs data-file.external-paths.weights
        data-file.path-directory data-file.prefix fields.default-aggregate-function
        file.compression.per.level file.format.per.level format-table.commit-hive-sync-url
        format-table.file.compression format-table.implementation
        global-index.column-update-action global-index.external-path incremental-between
        incremental-between-timestamp incremental-to-auto-tag lookup.cache-spill-compression
        materialized-table.definition-query materialized-table.interval-freshness
        materialized-table.interval-freshness.time-unit materialized-table.logical-refresh-mode
        materialized-table.refresh-handler-bytes materialized-table.refresh-handler-description
        materialized-table.refresh-mode materialized-table.refresh-status
        metadata.iceberg.compaction.max.file-num metadata.iceberg.compaction.min.file-num
        metadata.iceberg.database metadata.iceberg.delete-after-commit.enabled
        metadata.iceberg.format-version metadata.iceberg.glue.skip-archive
        metadata.iceberg.hadoop-conf-dir metadata.iceberg.hive-client-class
        metadata.iceberg.hive-conf-dir metadata.iceberg.hive-skip-update-stats
        metadata.iceberg.manifest-compression metadata.iceberg.manifest-legacy-version
        metadata.iceberg.previous-versions-max
        metadata.iceberg.storage-location metadata.iceberg.table metadata.iceberg.uri
        metadata.stats-mode.per.level metastore.tag-to-partition orc.column.encoding.direct
        orc.dictionary.key.threshold parquet.enable.dictionary
        partial-update.remove-record-on-sequence-group partition partition.default-name
        partition.expiration-strategy partition.mark-done-action
        partition.mark-done-action.custom.class partition.mark-done-action.http.params
        partition.mark-done-action.http.url partition.sink-strategy partition.timestamp-formatter
        partition.timestamp-pattern path primary-key record-level.time-field rowkind.field
        scan.fallback-branch scan.fallback-delta-branch scan.fallback-snapshot-branch
        scan.primary-branch scan.tag-name scan.timestamp scan.version sequence.field
        sink.process-time-zone sink.watermark-time-zone spill-compression
        tag.batch.customized-name tag.callbacks upsert-key variant.shreddingSchema vector-field
        vector.file.format
    """,
    "BOOLEAN": """
        add-column-before-partition aggregation.remove-record-on-delete
        alter-column-null-to-not-null.disabled async-file-write auto-create blob-as-descriptor
        blob.split-by-file-size bucket-append-ordered chain-table.enabled
        changelog-producer.row-deduplicate clustering.incremental
        clustering.incremental.optimize-write commit.discard-duplicate-files commit.force-compact
        commit.force-create-snapshot compaction.force-rewrite-all-files
        compaction.force-up-level-0 consumer.changelog-only consumer.ignore-progress
        data-evolution.enabled data-file.thin-mode delete.force-produce-changelog
        deletion-vectors.bitmap64 deletion-vectors.enabled deletion-vectors.modifiable
        disable-explicit-type-casting dynamic-partition-overwrite end-input.check-partition-expire
        file-index.read.enabled file.suffix.include.compression force-lookup
        format-table.partition-path-only-value global-index.enabled ignore-delete
        ignore-update-before incremental-between-tag-to-snapshot index-file-in-data-file-dir
        key-value.sequence_number.enabled lookup-wait lookup.cache.bloom.filter.enabled
        lookup.remote-file.enabled manifest.delete-file-drop-stats metadata.stats-dense-store
        metastore.partitioned-table orc.timestamp-ltz.legacy.type overwrite-upgrade
        partial-update.remove-record-on-delete partition.end-input-to-done partition.legacy-name
        partition.timestamp-format.strict pk-clustering-override postpone.batch-write-fixed-bucket
        query-auth.enabled row-tracking.enabled scan.ignore-corrupt-files scan.ignore-lost-files
        scan.plan-sort-partition snapshot.clean-empty-directories snapshot.ignore-empty-commit
        streaming-read-append-overwrite streaming-read-overwrite
        table-read.sequence-number.enabled tag.automatic-completion tag.create-success-file
        tag.time-expire-enabled variant.inferShreddingSchema visibility-callback.enabled
        write-buffer-for-append write-buffer-spillable write-only
    """,
    "INT": """
        changelog.num-retained.max changelog.num-retained.min clustering.history-partition.limit
        commit.max-retries compaction.file-num-limit compaction.max-size-amplification-percent
        compaction.min.file-num compaction.offpeak-ratio compaction.offpeak.end.hour
        compaction.offpeak.start.hour compaction.size-ratio
        cross-partition-upsert.bootstrap-parallelism dynamic-bucket.assigner-parallelism
        dynamic-bucket.initial-buckets dynamic-bucket.max-buckets file-operation.thread-num
        file.compression.zstd-level full-compaction.delta-commits
        global-index.build.max-parallelism global-index.build.max-shard global-index.thread-num
        local-sort.max-num-file-handles lookup-compact.max-interval lookup.merge-records-threshold
        lookup.remote-file.level-threshold manifest.merge-min-count
        metadata.stats-keep-first-n-columns num-levels num-sorted-run.compaction-trigger
        num-sorted-run.stop-trigger partition.expiration-batch-size partition.expiration-max-num
        postpone.batch-write-fixed-bucket.max-parallelism postpone.default-bucket-num
        read.batch-size scan.manifest.parallelism scan.max-splits-per-task snapshot.expire.limit
        snapshot.num-retained.max snapshot.num-retained.min
        sort-compaction.local-sample.magnification sort-spill-threshold
        spill-compression.zstd-level tag.num-retained-max variant.shredding.maxInferBufferRow
        variant.shredding.maxSchemaDepth variant.shredding.maxSchemaWidth
        write-max-writers-to-spill write.batch-size zorder.var-length-contribution
    """,
    "MEMORY SIZE": """
        blob.target-file-size cache-page-size compaction.incremental-size-threshold
        compaction.total-size-threshold deletion-vector.index-file.target-size
        file-index.in-manifest-threshold file-reader-async-threshold file.block-size
        local-merge-buffer-size lookup.cache-max-disk-size lookup.cache-max-memory-size
        lookup.merge-buffer-size manifest.full-compaction-threshold-size manifest.target-file-size
        page-size sort-spill-buffer-size source.split.open-file-cost source.split.target-size
        target-file-size vector.target-file-size write-buffer-size
        write-buffer-spill.max-disk-size write.batch-memory
    """,
    "DURATION": """
        changelog.time-retained clustering.history-partition.idle-to-full-sort
        commit.max-retry-wait commit.min-retry-wait commit.timeout
        compaction.optimization-interval consumer.expiration-time continuous.discovery-interval
        cross-partition-upsert.index-ttl lookup.cache-file-retention
        partition.expiration-check-interval partition.expiration-time
        partition.idle-time-to-report-statistic record-level.expire-time snapshot.time-retained
        snapshot.watermark-idle-timeout streaming.read.snapshot.delay tag.creation-delay
        tag.creation-period-duration tag.default-time-retained visibility-callback.check-interval
        visibility-callback.timeout
    """,
    "BIGINT": """
        commit.strict-mode.last-safe-snapshot dynamic-bucket.target-row-num
        global-index.row-count-per-shard scan.bounded.watermark scan.creation-time-millis
        scan.file-creation-time-millis scan.snapshot-id scan.timestamp-millis scan.watermark
    """,
    "DOUBLE": """
        compaction.delete-ratio-threshold lookup.cache.bloom.filter.fpp
        lookup.cache.high-priority-pool-ratio lookup.hash-load-factor
        variant.shredding.minFieldCardinalityRatio
    """,
    "none | uncompressed | snappy | gzip | lz4 | lz4_raw | zstd": """
        changelog-file.compression file.compression
    """,
    "parquet | orc | avro": "changelog-file.format file.format",
    _STATS: "changelog-file.stats-mode metadata.stats-mode",
    "none | process-time | watermark | batch": """
        metastore.tag-to-partition.preview tag.automatic-creation
    """,
    "none | compact": "batch-scan-mode",
    "default | mod | hive": "bucket-function.type",
    "none | input | full-compaction | lookup": "changelog-producer",
    "global-sort | local-sort": "clustering.incremental.mode",
    "none | specific-fs | round-robin | entropy-inject | weight-robin": """
        data-file.external-paths.strategy
    """,
    "auto | delta | changelog | diff": "incremental-between-scan-mode",
    "radical | gentle": "lookup-compact",
    "zstd | snappy | deflate": "manifest.compression",
    "avro": "manifest.format",
    "deduplicate | partial-update | aggregation | first-row": "merge-engine",
    "default | latest-full | full | latest | compacted-full | from-timestamp | "
    "from-creation-timestamp | from-file-creation-time | from-snapshot | from-snapshot-full | "
    "incremental": "scan.mode",
    "disabled | table-location | hadoop-catalog": "metadata.iceberg.storage",
    "ascending | descending": "sequence.field.sort-order",
    "sync | async": "snapshot.expire.execution-mode",
    "size | quantity": "sort-compaction.range-strategy",
    "exactly-once | at-least-once": "consumer.mode",
    "min-heap | loser-tree": "sort-engine",
    "none | compact-bucket-table | file-monitor": "stream-scan-mode",
    "daily | hourly | two-hours": "tag.creation-period",
    "with_dashes | without_dashes | without_dashes_and_spaces": "tag.period-formatter",
}
"""The options by the type of their values; a list of values stands for itself."""

TYPES = {key: kind for kind, keys in _BY_TYPE.items() for key in keys.split()}
CORE_KEYS = frozenset(TYPES)

FLINK_KEYS = frozenset(
    """
    changelog.precommit-compact.buffer-size changelog.precommit-compact.thread-num
    commit.custom-listeners end-input.watermark filesystem.job-level-settings.enabled lookup.async
    lookup.async-thread-number lookup.bootstrap-parallelism lookup.cache lookup.cache-rows
    lookup.continuous.discovery-interval lookup.dynamic-partition.refresh-interval
    lookup.dynamic-partition.refresh.async lookup.refresh.async
    lookup.refresh.async.pending-snapshot-count lookup.refresh.full-load-threshold
    lookup.refresh.time-periods-blacklist partition.idle-time-to-done
    partition.mark-done-action.mode partition.mark-done.recover-from-state partition.time-interval
    precommit-compact read.shuffle-bucket-with-partition rocksdb.block.blocksize
    rocksdb.block.cache-size rocksdb.block.metadata-blocksize rocksdb.bloom-filter.bits-per-key
    rocksdb.bloom-filter.block-based-mode rocksdb.compaction.level.max-size-level-base
    rocksdb.compaction.level.target-file-size-base rocksdb.compaction.level.use-dynamic-size
    rocksdb.compaction.style rocksdb.compression.type rocksdb.files.open rocksdb.thread.num
    rocksdb.use-bloom-filter rocksdb.writebuffer.count rocksdb.writebuffer.number-to-merge
    rocksdb.writebuffer.size scan.bounded scan.dedicated-split-generation scan.infer-parallelism
    scan.infer-parallelism.max scan.max-snapshot.count scan.parallelism scan.partitions
    scan.remove-normalize scan.split-enumerator.batch-size scan.split-enumerator.mode
    scan.watermark.alignment.group scan.watermark.alignment.max-drift
    scan.watermark.alignment.update-interval scan.watermark.emit.strategy
    scan.watermark.idle-timeout sink.clustering.sample-factor sink.clustering.sort-in-cluster
    sink.committer-cpu sink.committer-memory sink.committer-operator-chaining
    sink.cross-partition.managed-memory sink.managed.writer-buffer-memory sink.operator-uid.suffix
    sink.parallelism sink.savepoint.auto-tag sink.use-managed-memory-allocator
    sink.writer-coordinator.cache-memory sink.writer-coordinator.enabled
    sink.writer-coordinator.page-size sink.writer-cpu sink.writer-memory
    sink.writer-refresh-detectors source.checkpoint-align.enabled source.checkpoint-align.timeout
    source.operator-uid.suffix source.split.target-size-with-column-pruning
    unaware-bucket.compaction.parallelism
    """.split()
)
"""Options of the Flink connector, stored with a table since scripts written for Flink set them."""

FIELD_TYPES = {
    "aggregate-function": "STRING",
    "ignore-retract": "BOOLEAN",
    "sequence-group": "STRING",
    "nested-key": "STRING",
    "count-limit": "INT",
    "distinct": "BOOLEAN",
    "list-agg-delimiter": "STRING",
    "ts-field": "STRING",
    "stats-mode": _STATS,
    "nested-sequence-field": "STRING",
    "nested-key-null-strategy": "STRING",
}
"""The options of a column, `fields.<column>.…`, by the type of their values."""
FIELD = re.compile(r"fields\.(?P<columns>.+)\.(?P<what>[a-z-]+)")
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        r"file-index\.(bloom-filter|bitmap|bsi|range-bitmap)\..+",
        r"(parquet|orc|avro|csv|json|lance|text)\..+",
        r"blob-descriptor\..+",
        r"(commit|tag)\.callback\..+\.param",
        r"rocksdb\..+",
        r"(btree-index|lumina)\..+",
        r"metadata\.iceberg\..+",
        r"properties\..+",
        r"schema\.\d+\.(name|expr|data-type)",
    )
)


def check_table_options(options: Mapping[str, str], where: str) -> None:
    """Raise the first of the `option_faults`."""
    for fault in option_faults(options, where):
        raise fault


def option_faults(options: Mapping[str, str], where: str) -> Iterator[OptionError]:
    """Unknown keys, with the nearest known one, and values that are not of an option's type."""
    for key, value in options.items():
        fault = unknown_key(key, where)
        if fault is None:
            try:
                _check_value(key, value)
            except OptionError as error:
                fault = OptionError(f"{where}: {error}")
        if fault is not None:
            yield fault


def unknown_key(key: str, where: str) -> OptionError | None:
    """The error for a key that Paimon does not know, with the nearest key."""
    field = FIELD.fullmatch(key)
    if field and key not in CORE_KEYS:
        if field["what"] in FIELD_TYPES:
            return None
        hint = nearest(field["what"], FIELD_TYPES)
        return OptionError(f"{where}: unknown option '{key}'; options of a column: {hint}")
    if is_known(key):
        return None
    return OptionError(f"{where}: unknown table option '{key}'; {_hint(key)}")


def value_type(key: str) -> str:
    """The type of an option's values, as in `_BY_TYPE`."""
    field = FIELD.fullmatch(key)
    return TYPES.get(key) or (FIELD_TYPES.get(field["what"]) if field else None) or "STRING"


def without_blanks(options: Mapping[str, str]) -> dict[str, str]:
    """The options as the Java core reads them: without blanks around numbers, flags and words."""
    return {
        key: value if value_type(key) == "STRING" and key != "bucket" else value.strip()
        for key, value in options.items()
    }


def _check_value(key: str, value: str) -> None:
    kind = value_type(key)
    if kind in _CHECKS:
        _CHECKS[kind](key, value)
    elif kind != "STRING":
        word = re.sub(r"\(\d+\)", "(<length>)", value.strip().lower())
        choice(key, word, kind.split(" | "))


def _number(key: str, value: str) -> None:
    try:
        float(value)
    except ValueError:
        raise OptionError(f"option '{key}': '{value}' is not a number") from None


_CHECKS: Mapping[str, Callable[[str, str], object]] = {
    "BOOLEAN": boolean,
    "INT": integer,
    "BIGINT": integer,
    "DOUBLE": _number,
    "MEMORY SIZE": memory_bytes,
    "DURATION": duration_ms,
}


def is_known(key: str) -> bool:
    """Whether a table may have an option; some options of earlier releases have no effect today."""
    return key in CORE_KEYS or key in FLINK_KEYS or _matches(key) or bool(dropped_option(key))


def _matches(key: str) -> bool:
    return any(pattern.fullmatch(key) for pattern in _PATTERNS)


def _hint(key: str) -> str:
    hint = nearest(key, CORE_KEYS | FLINK_KEYS)
    return hint if hint.startswith("did") else "see Paimon's table options for the known ones"
