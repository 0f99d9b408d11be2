"""Finds the target columns that the query of an INSERT fills."""

from streamhouse.close_matches import nearest
from streamhouse.errors import SqlError
from streamhouse.sql.plan import TableInfo
from streamhouse.sql.syntax import Insert


def given_columns(target: TableInfo, statement: Insert) -> tuple[str, ...]:
    """The target columns in the order of the query's columns, without those of PARTITION (…).

    Empty means all columns. Raises `SqlError` for a PARTITION (…) with a column that is not a
    partition column, or that is in the column list too.
    """
    if not statement.partition:
        return statement.columns
    position = statement.position
    where = f"PARTITION of {'.'.join(target.name)}"
    for name in statement.partition:
        if name not in target.partitioned_by:
            if not target.partitioned_by:
                reason = "the table is not partitioned; leave out PARTITION (…)"
            else:
                reason = (
                    f"'{name}' is not a partition column; {nearest(name, target.partitioned_by)}"
                )
            raise SqlError.at(position, f"{where}: {reason}")
        if name in statement.columns:
            raise SqlError.at(
                position,
                f"{where}: '{name}' is also in the column list; leave it out of one of the two",
            )
    names = [column.name for column in target.columns if column.name not in statement.partition]
    return statement.columns or tuple(names)
