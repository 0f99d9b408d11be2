"""CREATE TABLE … AS SELECT, and CREATE TABLE … LIKE: columns taken from a query or a table."""

from collections.abc import Iterable
from dataclasses import replace

from streamhouse.close_matches import nearest
from streamhouse.errors import SqlError
from streamhouse.sql.batch.bounded_query import analyze_select
from streamhouse.sql.plan import Column, ComputedColumn, Resolver, TableInfo
from streamhouse.sql.statements.create_table import OVERWRITABLE
from streamhouse.sql.syntax import CreateTable, Like, Query
from streamhouse.sql.types import NULL
from streamhouse.sql.views.stored_view import as_ordinary_table


def like_table(statement: CreateTable, like: Like, base: TableInfo) -> CreateTable:
    """The statement with what its LIKE takes from `base`, by the rules of Flink.

    The columns of `base` come first. Raises `SqlError` for what both define, unless the statement's
    own definition may overwrite it.
    """
    base, at = as_ordinary_table(base), statement.position

    def taken(feature: str, theirs: Iterable[str], own: Iterable[str]) -> set[str]:
        """Those of the names in `base` that the table gets."""
        strategy, both = like.strategy(feature), sorted({*theirs} & {*own})
        if strategy == "INCLUDING" and both:
            help_ = f" or write OVERWRITING {feature}" if feature in OVERWRITABLE else ""
            raise SqlError.at(
                at, f"{base.name[-1]} defines '{both[0]}', too; leave one of them out{help_}"
            )
        return set() if strategy == "EXCLUDING" else {*theirs} - {*own}

    own = {column.name for column in _declared(statement)}
    physical = {column.name for column in base.columns if column.metadata is None}
    if physical & own:
        name = min(physical & own)
        raise SqlError.at(at, f"{base.name[-1]} has a column '{name}', too; leave this one out")
    metadata = taken("METADATA", {c.name for c in base.columns} - physical, own)
    generated = taken("GENERATED", {c.name for c in base.computed}, own)
    declared = [
        *(c for c in base.declared if c.name in physical | metadata | generated),
        *_declared(statement),
    ]
    options = {key: value for key, value in base.options.items() if key != "path"}
    if base.connector != "paimon":
        options["connector"] = base.connector
    kept = taken("OPTIONS", options, statement.options)
    key = base.primary_key if like.strategy("CONSTRAINTS") == "INCLUDING" else ()
    # Each table has one at most.
    theirs, given = (["a WATERMARK"] * bool(each.watermark) for each in (base, statement))
    watermark = base.watermark if taken("WATERMARKS", theirs, given) else None
    parts = base.partitioned_by if like.strategy("PARTITIONS") == "INCLUDING" else ()
    for what, both in (
        ("PRIMARY KEY", (key, statement.primary_key)),
        ("PARTITIONED BY", (parts, statement.partitioned_by)),
    ):
        if all(both):
            raise SqlError.at(at, f"{base.name[-1]} has a {what}, too; leave this one out")
    key = key or statement.primary_key
    return replace(
        statement,
        columns=tuple(
            replace(c, nullable=c.nullable and c.name not in key)
            for c in declared
            if isinstance(c, Column)
        ),
        computed=tuple(
            replace(c, place=place)
            for place, c in enumerate(declared)
            if isinstance(c, ComputedColumn)
        ),
        primary_key=key,
        partitioned_by=parts or statement.partitioned_by,
        watermark=watermark or statement.watermark,
        options={k: v for k, v in options.items() if k in kept} | dict(statement.options),
    )


def table_of_query(statement: CreateTable, query: Query, resolver: Resolver) -> CreateTable:
    """The statement with the columns of its query; declared columns give types of their own."""
    analyzed = analyze_select(
        query, resolver, "CREATE TABLE … AS needs a SELECT; write CREATE TABLE with its columns, "
        "then INSERT the VALUES",
    )  # fmt: skip
    output = analyzed.named((), "the table")
    declared = {column.name: column for column in statement.columns}
    for name in declared:
        if name not in output:
            raise SqlError.at(
                statement.position,
                f"the SELECT returns no column '{name}'; add it there, such as CAST(NULL AS "
                f"{declared[name].type}) AS {name}",
            )
    columns = []
    for name, kind in zip(output, analyzed.types, strict=True):
        column = declared.get(name) or Column(name, "STRING" if kind == NULL else kind)
        is_key = name in statement.primary_key
        columns.append(replace(column, nullable=column.nullable and not is_key))
    for what, listed in (
        ("PRIMARY KEY", statement.primary_key), ("PARTITIONED BY", statement.partitioned_by)
    ):  # fmt: skip
        for name in listed:
            if name not in output:
                message = f"{what}: the SELECT returns no column '{name}'; {nearest(name, output)}"
                raise SqlError.at(statement.position, message)
    computed = (replace(c, place=place) for place, c in enumerate(statement.computed))
    return replace(statement, columns=tuple(columns), computed=tuple(computed))


def _declared(statement: CreateTable) -> list[Column | ComputedColumn]:
    return TableInfo((), statement.columns, statement.computed).declared
