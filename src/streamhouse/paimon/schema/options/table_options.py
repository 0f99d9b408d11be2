"""The option keys that Paimon 1.4 and its Flink connector know for a table."""

from __future__ import annotations

import re
from collections.abc import Mapping

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError
from streamhouse.paimon.schema.options.iceberg_metadata import check_iceberg
from streamhouse.sql.options.renamed_options import dropped_option

CORE_KEYS = frozenset(
    """
add-column-before-partition
aggregation.remove-record-on-delete
alter-column-null-to-not-null.disabled
async-file-write
auto-create
batch-scan-mode
blob-as-descriptor
blob-descriptor-field
blob-external-storage-field
blob-external-storage-path
blob-field
blob.split-by-file-size
blob.target-file-size
branch
bucket
bucket-append-ordered
bucket-function.type
bucket-key
cache-page-size
chain-table.chain-partition-keys
chain-table.enabled
changelog-file.compression
changelog-file.format
changelog-file.prefix
changelog-file.stats-mode
changelog-producer
changelog-producer.row-deduplicate
changelog-producer.row-deduplicate-ignore-fields
changelog.num-retained.max
changelog.num-retained.min
changelog.time-retained
clustering.columns
clustering.history-partition.idle-to-full-sort
clustering.history-partition.limit
clustering.incremental
clustering.incremental.mode
clustering.incremental.optimize-write
clustering.strategy
commit.callbacks
commit.discard-duplicate-files
commit.force-compact
commit.force-create-snapshot
commit.max-retries
commit.max-retry-wait
commit.min-retry-wait
commit.strict-mode.last-safe-snapshot
commit.timeout
commit.user-prefix
compaction.delete-ratio-threshold
compaction.file-num-limit
compaction.force-rewrite-all-files
compaction.force-up-level-0
compaction.incremental-size-threshold
compaction.max-size-amplification-percent
compaction.min.file-num
compaction.offpeak-ratio
compaction.offpeak.end.hour
compaction.offpeak.start.hour
compaction.optimization-interval
compaction.size-ratio
compaction.total-size-threshold
consumer-id
consumer.changelog-only
consumer.expiration-time
consumer.ignore-progress
consumer.mode
continuous.discovery-interval
cross-partition-upsert.bootstrap-parallelism
cross-partition-upsert.index-ttl
data-evolution.enabled
data-file.external-paths
data-file.external-paths.specific-fs
data-file.external-paths.strategy
data-file.external-paths.weights
data-file.path-directory
data-file.prefix
data-file.thin-mode
delete.force-produce-changelog
deletion-vector.index-file.target-size
deletion-vectors.bitmap64
deletion-vectors.enabled
deletion-vectors.modifiable
disable-explicit-type-casting
dynamic-bucket.assigner-parallelism
dynamic-bucket.initial-buckets
dynamic-bucket.max-buckets
dynamic-bucket.target-row-num
dynamic-partition-overwrite
end-input.check-partition-expire
fields.default-aggregate-function
file-index.in-manifest-threshold
file-index.read.enabled
file-operation.thread-num
file-reader-async-threshold
file.block-size
file.compression
file.compression.per.level
file.compression.zstd-level
file.format
file.format.per.level
file.suffix.include.compression
force-lookup
format-table.commit-hive-sync-url
format-table.file.compression
format-table.implementation
format-table.partition-path-only-value
full-compaction.delta-commits
global-index.build.max-parallelism
global-index.build.max-shard
global-index.column-update-action
global-index.enabled
global-index.external-path
global-index.row-count-per-shard
global-index.thread-num
ignore-delete
ignore-update-before
incremental-between
incremental-between-scan-mode
incremental-between-tag-to-snapshot
incremental-between-timestamp
incremental-to-auto-tag
index-file-in-data-file-dir
key-value.sequence_number.enabled
local-merge-buffer-size
local-sort.max-num-file-handles
lookup-compact
lookup-compact.max-interval
lookup-wait
lookup.cache-file-retention
lookup.cache-max-disk-size
lookup.cache-max-memory-size
lookup.cache-spill-compression
lookup.cache.bloom.filter.enabled
lookup.cache.bloom.filter.fpp
lookup.cache.high-priority-pool-ratio
lookup.hash-load-factor
lookup.merge-buffer-size
lookup.merge-records-threshold
lookup.remote-file.enabled
lookup.remote-file.level-threshold
manifest.compression
manifest.delete-file-drop-stats
manifest.format
manifest.full-compaction-threshold-size
manifest.merge-min-count
manifest.target-file-size
materialized-table.definition-query
materialized-table.interval-freshness
materialized-table.interval-freshness.time-unit
materialized-table.logical-refresh-mode
materialized-table.refresh-handler-bytes
materialized-table.refresh-handler-description
materialized-table.refresh-mode
materialized-table.refresh-status
merge-engine
metadata.iceberg.compaction.max.file-num
metadata.iceberg.compaction.min.file-num
metadata.iceberg.database
metadata.iceberg.delete-after-commit.enabled
metadata.iceberg.format-version
metadata.iceberg.glue.skip-archive
metadata.iceberg.hadoop-conf-dir
metadata.iceberg.hive-client-class
metadata.iceberg.hive-conf-dir
metadata.iceberg.hive-skip-update-stats
metadata.iceberg.manifest-compression
metadata.iceberg.manifest-legacy-version
metadata.iceberg.previous-versions-max
metadata.iceberg.storage
metadata.iceberg.storage-location
metadata.iceberg.table
metadata.iceberg.uri
metadata.stats-dense-store
metadata.stats-keep-first-n-columns
metadata.stats-mode
metadata.stats-mode.per.level
metastore.partitioned-table
metastore.tag-to-partition
metastore.tag-to-partition.preview
num-levels
num-sorted-run.compaction-trigger
num-sorted-run.stop-trigger
orc.column.encoding.direct
orc.dictionary.key.threshold
orc.timestamp-ltz.legacy.type
overwrite-upgrade
page-size
parquet.enable.dictionary
partial-update.remove-record-on-delete
partial-update.remove-record-on-sequence-group
partition
partition.default-name
partition.end-input-to-done
partition.expiration-batch-size
partition.expiration-check-interval
partition.expiration-max-num
partition.expiration-strategy
partition.expiration-time
partition.idle-time-to-report-statistic
partition.legacy-name
partition.mark-done-action
partition.mark-done-action.custom.class
partition.mark-done-action.http.params
partition.mark-done-action.http.url
partition.sink-strategy
partition.timestamp-format.strict
partition.timestamp-formatter
partition.timestamp-pattern
path
pk-clustering-override
postpone.batch-write-fixed-bucket
postpone.batch-write-fixed-bucket.max-parallelism
postpone.default-bucket-num
primary-key
query-auth.enabled
read.batch-size
record-level.expire-time
record-level.time-field
row-tracking.enabled
rowkind.field
scan.bounded.watermark
scan.creation-time-millis
scan.fallback-branch
scan.fallback-delta-branch
scan.fallback-snapshot-branch
scan.file-creation-time-millis
scan.ignore-corrupt-files
scan.ignore-lost-files
scan.manifest.parallelism
scan.max-splits-per-task
scan.mode
scan.plan-sort-partition
scan.primary-branch
scan.snapshot-id
scan.tag-name
scan.timestamp
scan.timestamp-millis
scan.version
scan.watermark
sequence.field
sequence.field.sort-order
sink.process-time-zone
sink.watermark-time-zone
snapshot.clean-empty-directories
snapshot.expire.execution-mode
snapshot.expire.limit
snapshot.ignore-empty-commit
snapshot.num-retained.max
snapshot.num-retained.min
snapshot.time-retained
snapshot.watermark-idle-timeout
sort-compaction.local-sample.magnification
sort-compaction.range-strategy
sort-engine
sort-spill-buffer-size
sort-spill-threshold
source.split.open-file-cost
source.split.target-size
spill-compression
spill-compression.zstd-level
stream-scan-mode
streaming-read-append-overwrite
streaming-read-overwrite
streaming.read.snapshot.delay
table-read.sequence-number.enabled
tag.automatic-completion
tag.automatic-creation
tag.batch.customized-name
tag.callbacks
tag.create-success-file
tag.creation-delay
tag.creation-period
tag.creation-period-duration
tag.default-time-retained
tag.num-retained-max
tag.period-formatter
tag.time-expire-enabled
target-file-size
upsert-key
variant.inferShreddingSchema
variant.shredding.maxInferBufferRow
variant.shredding.maxSchemaDepth
variant.shredding.maxSchemaWidth
variant.shredding.minFieldCardinalityRatio
variant.shreddingSchema
vector-field
vector.file.format
vector.target-file-size
visibility-callback.check-interval
visibility-callback.enabled
visibility-callback.timeout
write-buffer-for-append
write-buffer-size
write-buffer-spill.max-disk-size
write-buffer-spillable
write-max-writers-to-spill
write-only
write.batch-memory
write.batch-size
zorder.var-length-contribution
    """.split()
)

FLINK_KEYS = frozenset(
    """
changelog.precommit-compact.buffer-size
changelog.precommit-compact.thread-num
commit.custom-listeners
end-input.watermark
filesystem.job-level-settings.enabled
lookup.async
lookup.async-thread-number
lookup.bootstrap-parallelism
lookup.cache
lookup.cache-rows
lookup.continuous.discovery-interval
lookup.dynamic-partition.refresh-interval
lookup.dynamic-partition.refresh.async
lookup.refresh.async
lookup.refresh.async.pending-snapshot-count
lookup.refresh.full-load-threshold
lookup.refresh.time-periods-blacklist
partition.idle-time-to-done
partition.mark-done-action.mode
partition.mark-done.recover-from-state
partition.time-interval
precommit-compact
read.shuffle-bucket-with-partition
rocksdb.block.blocksize
rocksdb.block.cache-size
rocksdb.block.metadata-blocksize
rocksdb.bloom-filter.bits-per-key
rocksdb.bloom-filter.block-based-mode
rocksdb.compaction.level.max-size-level-base
rocksdb.compaction.level.target-file-size-base
rocksdb.compaction.level.use-dynamic-size
rocksdb.compaction.style
rocksdb.compression.type
rocksdb.files.open
rocksdb.thread.num
rocksdb.use-bloom-filter
rocksdb.writebuffer.count
rocksdb.writebuffer.number-to-merge
rocksdb.writebuffer.size
scan.bounded
scan.dedicated-split-generation
scan.infer-parallelism
scan.infer-parallelism.max
scan.max-snapshot.count
scan.parallelism
scan.partitions
scan.remove-normalize
scan.split-enumerator.batch-size
scan.split-enumerator.mode
scan.watermark.alignment.group
scan.watermark.alignment.max-drift
scan.watermark.alignment.update-interval
scan.watermark.emit.strategy
scan.watermark.idle-timeout
sink.clustering.sample-factor
sink.clustering.sort-in-cluster
sink.committer-cpu
sink.committer-memory
sink.committer-operator-chaining
sink.cross-partition.managed-memory
sink.managed.writer-buffer-memory
sink.operator-uid.suffix
sink.parallelism
sink.savepoint.auto-tag
sink.use-managed-memory-allocator
sink.writer-coordinator.cache-memory
sink.writer-coordinator.enabled
sink.writer-coordinator.page-size
sink.writer-cpu
sink.writer-memory
sink.writer-refresh-detectors
source.checkpoint-align.enabled
source.checkpoint-align.timeout
source.operator-uid.suffix
source.split.target-size-with-column-pruning
unaware-bucket.compaction.parallelism
    """.split()
)
"""Options of the Flink connector, stored with a table since scripts written for Flink set them."""

_FIELD_SUFFIXES = (
    "aggregate-function",
    "ignore-retract",
    "sequence-group",
    "nested-key",
    "count-limit",
    "distinct",
    "list-agg-delimiter",
    "ts-field",
    "stats-mode",
    "nested-sequence-field",
    "nested-key-null-strategy",
)
_FIELD = re.compile(r"fields\.(?P<columns>.+)\.(?P<what>[a-z-]+)")
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
    """Raise `OptionError` for the first key that Paimon does not know, with the nearest key."""
    for key in options:
        field = _FIELD.fullmatch(key)
        if field and key not in CORE_KEYS:
            suffix = field.group("what")
            if suffix not in _FIELD_SUFFIXES:
                raise OptionError(
                    f"{where}: unknown option '{key}'; options of a column: "
                    f"{nearest(suffix, _FIELD_SUFFIXES)}"
                )
        elif not is_known(key):
            raise OptionError(f"{where}: unknown table option '{key}'; {_hint(key)}")
    check_iceberg(where, options)


def is_known(key: str) -> bool:
    """Whether a table may have an option; some options of earlier releases have no effect today."""
    return key in CORE_KEYS or key in FLINK_KEYS or _matches(key) or bool(dropped_option(key))


def _matches(key: str) -> bool:
    return any(pattern.fullmatch(key) for pattern in _PATTERNS)


def _hint(key: str) -> str:
    hint = nearest(key, CORE_KEYS | FLINK_KEYS)
    return hint if hint.startswith("did") else "see Paimon's table options for the known ones"
