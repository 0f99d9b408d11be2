"""ALTER TABLE in both dialects, and its errors."""

from __future__ import annotations

import pytest

from streamhouse.errors import SqlError, UnsupportedSqlError
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import (
    AddColumn,
    ColumnPosition,
    DropColumn,
    MoveColumn,
    RenameColumn,
    ResetTableOption,
    SchemaChange,
    SetColumnComment,
    SetDefault,
    SetNullable,
    SetTableOption,
    SetType,
)
from streamhouse.sql.statements.alter_table import AlterTable
from streamhouse.sql.statements.script import parse_script

INT_B = Column("b", "INT")
CASES: list[tuple[str, list[SchemaChange]]] = [
    ("ADD b INT", [AddColumn(INT_B)]),
    ("ADD COLUMN b INT", [AddColumn(INT_B)]),
    ("ADD COLUMNS (b INT)", [AddColumn(INT_B)]),
    ("ADD COLUMN IF NOT EXISTS b INT", [AddColumn(INT_B, None, True)]),
    ("ADD b INT FIRST", [AddColumn(INT_B, ColumnPosition())]),
    (
        "ADD (b INT AFTER a, `c d` STRING COMMENT 'x' FIRST)",
        [
            AddColumn(INT_B, ColumnPosition("a")),
            AddColumn(Column("c d", "STRING", True, "x"), ColumnPosition()),
        ],
    ),
    ("ADD b INT NOT NULL", [AddColumn(Column("b", "INT", False))]),
    ("ADD r.b INT", [AddColumn(INT_B, parent=("r",))]),
    ("ADD b INT DEFAULT -1", [AddColumn(INT_B), SetDefault(("b",), "-1")]),
    ("DROP b", [DropColumn(("b",))]),
    ("DROP COLUMN b", [DropColumn(("b",))]),
    ("DROP COLUMNS IF EXISTS (b, c)", [DropColumn(("b",), True), DropColumn(("c",), True)]),
    ("DROP (b, r.c)", [DropColumn(("b",)), DropColumn(("r", "c"))]),
    ("RENAME a TO b", [RenameColumn(("a",), "b")]),
    ("RENAME COLUMN a TO b", [RenameColumn(("a",), "b")]),
    ("RENAME COLUMN IF EXISTS a TO b", [RenameColumn(("a",), "b", True)]),
    ("MODIFY a BIGINT", [SetType(("a",), "BIGINT"), SetNullable(("a",), True, True)]),
    (
        "MODIFY (a BIGINT NOT NULL COMMENT 'x' FIRST, b STRING)",
        [
            SetType(("a",), "BIGINT"),
            SetNullable(("a",), False),
            SetColumnComment(("a",), "x"),
            MoveColumn("a", ColumnPosition()),
            SetType(("b",), "STRING"),
            SetNullable(("b",), True, True),
        ],
    ),
    ("ALTER COLUMN a TYPE DECIMAL(12, 2)", [SetType(("a",), "DECIMAL(12, 2)")]),
    ("ALTER COLUMN a SET DATA TYPE BIGINT", [SetType(("a",), "BIGINT")]),
    ("CHANGE COLUMN a BIGINT", [SetType(("a",), "BIGINT")]),
    ("ALTER COLUMN a DROP NOT NULL", [SetNullable(("a",), True)]),
    ("ALTER COLUMN a SET NOT NULL", [SetNullable(("a",), False)]),
    ("ALTER COLUMN a COMMENT 'x'", [SetColumnComment(("a",), "x")]),
    ("ALTER COLUMN a AFTER b", [MoveColumn("a", ColumnPosition("b"))]),
    ("ALTER COLUMN a SET DEFAULT 'x'", [SetDefault(("a",), "x")]),
    ("ALTER COLUMN a DROP DEFAULT", [SetDefault(("a",), None)]),
    ("SET ('k' = 'v', 'l' = 'w')", [SetTableOption("k", "v"), SetTableOption("l", "w")]),
    ("SET TBLPROPERTIES ('k' = 'v')", [SetTableOption("k", "v")]),
    ("RESET ('k', 'l')", [ResetTableOption("k"), ResetTableOption("l")]),
    ("UNSET TBLPROPERTIES IF EXISTS ('k')", [ResetTableOption("k")]),
]


def parsed(text: str) -> AlterTable:
    [statement] = parse_script(text)
    assert isinstance(statement, AlterTable)
    return statement


@pytest.mark.parametrize(("action", "changes"), CASES, ids=[text for text, _ in CASES])
def test_changes(action: str, changes: list[SchemaChange]) -> None:
    statement = parsed(f"ALTER TABLE db.t {action};")
    assert (statement.name, list(statement.changes)) == (("db", "t"), changes)


def test_a_table_is_renamed() -> None:
    statement = parsed("ALTER TABLE IF EXISTS t RENAME TO db.u")
    assert (statement.new_name, statement.changes, statement.if_exists) == (("db", "u"), (), True)


MISTAKES = [
    ("ALTER TABLE t ADDED b INT", "did you mean ADD?"),
    ("ALTER TABLE t ADD b INTT", "did you mean INT?"),
    ("ALTER TABLE t RENAME a b", "expected TO"),
    ("ALTER TABLE t SET (k = 'v')", "an option's key"),
    ("ALTER TABLE t ADD (b INT", "expected ',' or ')'"),
    ("ALTER TABLE t ALTER COLUMN a SET DEFAULT b", "expected a constant"),
    ("ALTER TABLE t", "the statement ends too early"),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_mistakes_are_errors_with_a_position(text: str, message: str) -> None:
    with pytest.raises(SqlError, match="line 1, column") as caught:
        parse_script(text)
    assert message in str(caught.value)


UNSUPPORTED = [
    ("ALTER TABLE t ADD PRIMARY KEY (a) NOT ENFORCED", "a primary key cannot be changed"),
    ("ALTER TABLE t DROP PRIMARY KEY", "a primary key cannot be changed"),
    ("ALTER TABLE t ADD b AS a + 1", "computed columns are part of CREATE TABLE"),
    ("ALTER TABLE t MODIFY r.x INT FIRST", "'r.x' is a field of a ROW, but only columns can be"),
    ("ALTER TABLE t ALTER COLUMN r.x AFTER y", "'r.x' is a field of a ROW, but only columns can"),
    ("ALTER TABLE t DROP PARTITION (a = 1)", "DELETE their rows"),
    ("ALTER VIEW v RENAME TO w", "only ALTER TABLE is"),
]


@pytest.mark.parametrize(("text", "message"), UNSUPPORTED)
def test_understood_and_not_supported(text: str, message: str) -> None:
    with pytest.raises(UnsupportedSqlError) as caught:
        parse_script(text)
    assert message in str(caught.value)
