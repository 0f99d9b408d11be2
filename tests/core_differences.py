"""Differences between the Rust core and Paimon's Java core, and the workarounds for them.

`tests/integration/paimon/test_core_differences.py` has a test for each, which fails once the
installed core is correct. Then remove the workaround, and its entry here.
"""

from __future__ import annotations

from dataclasses import dataclass

CORE_VERSION = "0.4.0"
"""The version of pypaimon-rust that has the differences below."""


@dataclass(frozen=True)
class CoreDifference:
    """A difference (`behavior`), the module with its workaround, and the decision's number."""

    name: str
    behavior: str
    workaround: str
    decision: int | None = None


DIFFERENCES = (
    CoreDifference(
        "obsolete levels",
        "adds up rows of all levels where a compaction looks keys up",
        "paimon.read.rust_core.lookup_merge",
        105,
    ),
    CoreDifference(
        "audit log",
        "leaves deleted keys out of $audit_log unless the table deduplicates, and shows rows of "
        "level 0 that deletion vectors and first-row hide",
        "paimon.read.system_tables: SystemTable._audited",
        105,
    ),
    CoreDifference(
        "nanosecond timestamps written",
        "writes TIMESTAMP(7) to (9) as 64 bits of nanoseconds into Parquet, where the Java core "
        "reads INT96",
        "paimon.schema.file_formats.nanosecond_timestamps: check_type refuses such columns",
        106,
    ),
    CoreDifference(
        "nanosecond timestamps read",
        "overflows for INT96 values outside the years 1677 to 2262",
        "paimon.schema.file_formats.nanosecond_timestamps: check_files refuses such files",
        106,
    ),
    CoreDifference(
        "orc range",
        "cannot read timestamps of ORC files outside the years 1677 to 2262",
        "paimon.schema.file_formats.orc_values: OrcValues refuses to write them",
        107,
    ),
    CoreDifference(
        "orc timestamps before 1900",
        "shifts timestamps before 1900 of ORC files that were not written in UTC",
        "paimon.schema.file_formats.orc_values: OrcReader refuses to read them",
        107,
    ),
    CoreDifference(
        "orc instants",
        "reads TIMESTAMP_LTZ of ORC files of the legacy kind as if they were written in UTC",
        "paimon.schema.file_formats.orc_values: OrcReader refuses other files; new tables are not "
        "of that kind",
        107,
    ),
    CoreDifference(
        "orc padding",
        "returns CHAR of ORC files with the trailing spaces that the Java core removes",
        "paimon.schema.file_formats.orc_values: OrcReader for reads, OrcValues for writes",
        107,
    ),
    CoreDifference(
        "orc writer",
        "writes no timestamps into ORC files",
        "paimon.write.table_writer: writable writes Parquet, which a compaction turns into ORC",
    ),
    CoreDifference(
        "orc vectors",
        "returns deleted rows of ORC files if the rows between them are more than a batch",
        "paimon.read.rust_core.batch_size",
        86,
    ),
    CoreDifference(
        "orc vectors and conditions",
        "panics over a condition on an ORC file with a deletion vector",
        "paimon.read.rust_core.batch_size",
        86,
    ),
    CoreDifference(
        "avro rows",
        "returns nulls for the fields of a ROW in batches of Avro files that begin with a null",
        "paimon.schema.file_formats.avro_rows, paimon.read.rust_core.batch_size",
        108,
    ),
    CoreDifference(
        "kinds of other versions",
        "loses the row kinds of files with another version of the schema",
        "paimon.schema.evolution: read_changes",
    ),
    CoreDifference(
        "columns of a snapshot",
        "looks for the columns and conditions of a read in the schema that its snapshot had",
        "paimon.read.table: Table.splits",
    ),
    CoreDifference(
        "partitions of a snapshot",
        "lists the partitions of the newest snapshot, whichever snapshot is requested",
        "lookup.partitions: newest_snapshot",
    ),
    CoreDifference(
        "options of a branch",
        "shows an option in a branch's $options that the table does not have",
        "paimon.read.system_tables: _options",
    ),
    CoreDifference(
        "retractions merged in memory",
        "drops the retraction by the first row of a key when it merges rows of a table with "
        "merge-engine partial-update and aggregates before it writes them",
        "paimon.write.merge_rules.retraction_file_split",
        120,
    ),
    CoreDifference(
        "ignored deletes",
        "applies deletes of files when it reads a table with ignore-delete",
        "paimon.read.rust_core.ignored_deletes",
        138,
    ),
    CoreDifference(
        "manifests",
        "never merges manifests when it commits",
        "paimon.maintenance.service, which has the Java core do it",
    ),
)
