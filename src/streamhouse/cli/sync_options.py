"""The options of `streamhouse sync`, as types of its parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

TableOption = Annotated[str, typer.Option("--table", metavar="NAME", help="The Paimon table.")]
DatabaseOption = Annotated[
    str, typer.Option("--database", metavar="NAME", help="The Paimon database.")
]
MysqlConfOption = Annotated[
    list[str],
    typer.Option(
        "--mysql-conf",
        metavar="KEY=VALUE",
        help="An option of the source, as of a mysql-cdc table: hostname, port, username, "
        "password, database-name (a regular expression), …; repeated.",
    ),
]
TableConfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--table-conf", metavar="KEY=VALUE", help="An option of the Paimon tables; repeated."
    ),
]
CatalogConfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--catalog-conf", metavar="KEY=VALUE", help="A catalog option, as --option; repeated."
    ),
]
PartitionKeysOption = Annotated[
    str,
    typer.Option("--partition-keys", metavar="A,B", help="The partition keys of the tables."),
]
PrimaryKeysOption = Annotated[
    str,
    typer.Option("--primary-keys", metavar="A,B", help="The primary key; default: that of MySQL."),
]
TypeMappingOption = Annotated[
    str,
    typer.Option(
        "--type-mapping",
        metavar="MODE,…",
        help="tinyint1-not-bool, to-nullable, to-string, char-to-string, longtext-to-bytes, "
        "bigint-unsigned-to-bigint, time-to-string.",
    ),
]
ComputedOption = Annotated[
    list[str] | None,
    typer.Option(
        "--computed-column",
        metavar="NAME=FUNCTION(COLUMN)",
        help="A computed column, such as 'day=date_format(created, yyyy-MM-dd)'; repeated.",
    ),
]
MetadataOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metadata-column", metavar="A,B", help="database_name, table_name, op_ts; repeated."
    ),
]
MetadataPrefixOption = Annotated[
    str,
    typer.Option(
        "--metadata-column-prefix", metavar="P", help="How the names of these columns begin."
    ),
]
SourceKeysOption = Annotated[
    str,
    typer.Option(
        "--sync-primary-keys-from-source-schema",
        metavar="true|false",
        help="Whether tables get the primary key of MySQL; false: none, so they take inserts only.",
    ),
]
SkipOption = Annotated[
    bool,
    typer.Option(
        "--skip-unsupported",
        help="Leave out views, and tables that cannot be followed, with a notice.",
    ),
]
BehaviorOption = Annotated[
    str | None,
    typer.Option(
        "--schema-change-behavior",
        metavar="evolve|try_evolve|lenient|ignore|exception",
        help="What happens when tables are altered, as Flink CDC's schema.change.behavior; "
        "default: try_evolve.",
    ),
]
IncludeChangesOption = Annotated[
    str,
    typer.Option(
        "--include-schema-changes",
        metavar="KIND,…",
        help="The schema changes to follow: add.column, alter.column.type, create.table, "
        "drop.column, drop.table, rename.column, truncate.table, or a part of a name.",
    ),
]
ExcludeChangesOption = Annotated[
    str,
    typer.Option(
        "--exclude-schema-changes", metavar="KIND,…", help="The schema changes not to follow."
    ),
]
UntilCaughtUpOption = Annotated[
    bool, typer.Option("--until-caught-up", help="Stop when nothing is left to read.")
]
FromScratchOption = Annotated[
    bool,
    typer.Option(
        "--from-scratch",
        help="Forget where the sync was: read all tables again, compare them with the Paimon "
        "tables, and write the differences. Applies to this run only.",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print each report as one JSON object on standard output.")
]
NameOption = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="NAME",
        help="The name of the sync and of its checkpoint. Default: sync- and the target.",
    ),
]
CheckpointsOption = Annotated[
    Path | None,
    typer.Option("--checkpoints", metavar="DIR", help="Where the checkpoint is kept."),
]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Print logs and stack traces.")]
IncludingTablesOption = Annotated[
    str,
    typer.Option("--including-tables", metavar="REGEX", help="The tables to follow."),
]
ExcludingTablesOption = Annotated[
    str | None,
    typer.Option("--excluding-tables", metavar="REGEX", help="The tables not to follow."),
]
TablePrefixOption = Annotated[
    str, typer.Option("--table-prefix", help="How the names of the Paimon tables begin.")
]
TableSuffixOption = Annotated[
    str, typer.Option("--table-suffix", help="How the names of the Paimon tables end.")
]
TablePrefixDbOption = Annotated[
    list[str] | None,
    typer.Option("--table-prefix-db", metavar="DATABASE=PREFIX", help="Of one database."),
]
TableSuffixDbOption = Annotated[
    list[str] | None,
    typer.Option("--table-suffix-db", metavar="DATABASE=SUFFIX", help="Of one database."),
]
TableMappingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--table-mapping", metavar="TABLE=NAME", help="The Paimon table of one table; repeated."
    ),
]
IncludingDbsOption = Annotated[
    str, typer.Option("--including-dbs", metavar="REGEX", help="The databases to follow.")
]
ExcludingDbsOption = Annotated[
    str | None,
    typer.Option("--excluding-dbs", metavar="REGEX", help="The databases not to follow."),
]
MultipleTablePartitionKeysOption = Annotated[
    list[str] | None,
    typer.Option(
        "--multiple-table-partition-keys",
        metavar="TABLE=A,B",
        help="The partition keys of one Paimon table; repeated.",
    ),
]
EagerInitOption = Annotated[
    str, typer.Option("--eager-init", hidden=True, help="Of Flink's sinks; without effect.")
]
MergeShardsOption = Annotated[
    str,
    typer.Option(
        "--merge-shards",
        metavar="true|false",
        help="Write tables of one name, in several databases, into one Paimon table; false: "
        "into tables named database_table.",
    ),
]
IgnoreIncompatibleOption = Annotated[
    str,
    typer.Option(
        "--ignore-incompatible",
        metavar="true|false",
        help="Leave out tables that do not fit an existing Paimon table, with a notice.",
    ),
]
ModeOption = Annotated[
    str,
    typer.Option(
        "--mode",
        metavar="combined|divided",
        help="combined: tables that are created later are followed at once; divided: after a "
        "restart.",
    ),
]
