"""Restores the secrets of a script that was shown with masked ones and edited."""

from __future__ import annotations

import time

import pytest

from streamhouse.errors import SqlError
from streamhouse.sql.secrets import without_secrets
from streamhouse.sql.statements.restore_secrets import restore_secrets

SCRIPT = """-- The shop's tables; the last reader had 'password' = 'an-old-one'.
CREATE CATALOG lake WITH ('type' = 'paimon', 'warehouse' = 's3://lake', 's3.secret-key' = 'key-1');
CREATE TEMPORARY TABLE customers (id INT, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'mysql-cdc', 'hostname' = 'db-1', 'port' = '3306', 'username' = 'reader',
  'password' = 'it''s; one', 'database-name' = 'shop', 'table-name' = 'customers', 'server-id' = '5'
);
CREATE TEMPORARY TABLE IF NOT EXISTS `orders` (id INT, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'mysql-cdc', 'hostname' = 'db-2', 'username' = 'reader', 'password' = 'two'
);
CREATE TEMPORARY TABLE rates (id INT) WITH (
  'connector' = 'jdbc', 'url' = 'jdbc:mysql://reader:three@db-3/shop', 'table-name' = 'rates'
);
SET 'x.token' = 'four';
SET y.token = five;
INSERT INTO totals SELECT id FROM orders /*+ OPTIONS('password' = 'six') */;
"""
SHOWN = without_secrets(SCRIPT)
HIDDEN = ("key-1", "it''s; one", "two", "three", "four", "five", "six", "an-old-one")


def test_secrets_of_an_unchanged_script_are_restored() -> None:
    assert not any(f"'{secret}'" in SHOWN for secret in HIDDEN)
    assert restore_secrets(SHOWN, SCRIPT) == SCRIPT.replace("an-old-one", "****")
    assert restore_secrets(SCRIPT, "") == SCRIPT
    plain = (
        "INSERT INTO t SELECT '****', password FROM s WHERE 'a' = '****'; -- 'password' = '****'"
    )
    assert restore_secrets(plain, "") == plain


EDITS = {
    "another statement": ("INSERT INTO totals", "INSERT INTO a VALUES (1); INSERT INTO totals"),
    "other columns": ("(id INT, PRIMARY", "(id INT, name STRING, PRIMARY"),
    "another option": ("'server-id' = '5'", "'server-id' = '6', 'scan.fetch.size' = '10'"),
    "another table of the server": ("'table-name' = 'customers'", "'table-name' = 'people'"),
    "a comment": ("CREATE CATALOG", "-- a; b 'c\nCREATE CATALOG"),
    "a new value": ("'password' = '****', 'database-name'", "'password' = 'new', 'database-name'"),
    "other white space": ("WITH (\n  'connector' = 'mysql-cdc'", "WITH ('connector'='mysql-cdc'"),
    "another statement gone": (SHOWN[SHOWN.index("SET 'x.token'") :], ""),
}


@pytest.mark.parametrize("edit", EDITS)
def test_secrets_are_restored_for_the_same_table_and_address(edit: str) -> None:
    old, new = EDITS[edit]
    assert old in SHOWN
    edited = SHOWN.replace(old, new)
    restored = restore_secrets(edited, SCRIPT)
    assert without_secrets(restored) == without_secrets(edited)
    stars = restored.replace("'password' = '****'.\n", "").count("****")
    assert stars == 0
    for secret in ("key-1", "two", "three"):
        assert restored.count(secret) == 1


REFUSED = {
    "another host": ("'hostname' = 'db-1'", "'hostname' = 'evil.example'", "'password'", 5),
    "another port": ("'port' = '3306'", "'port' = '1'", "'password'", 5),
    "another user": ("'username' = 'reader',\n", "'username' = 'root',\n", "'password'", 5),
    "another connector": ("'mysql-cdc', 'hostname' = 'db-1'", "'jdbc', 'hostname' = 'db-1'",
                          "'password'", 5),
    "another table": ("TABLE customers", "TABLE people", "'password'", 5),
    "another host of a URL": ("@db-3/", "@evil.example/", "in the URL", 11),
    "another warehouse": ("'s3://lake'", "'s3://sea'", "'s3.secret-key'", 2),
    "another option of the kind": ("'password' = '****'\n", "'secret' = '****'\n", "'secret'", 8),
    "another setting": ("SET 'x.token'", "SET 'z.token'", "'z.token'", 13),
    "another bare setting": ("SET y.token", "SET z.token", "'z.token'", 14),
    "another query with the hint": ("SELECT id FROM orders", "SELECT 1 FROM orders",
                                    "'password'", 15),
}  # fmt: skip


@pytest.mark.parametrize("edit", REFUSED)
def test_secrets_are_not_restored_for_another_address(edit: str) -> None:
    old, new, message, line = REFUSED[edit]
    assert old in SHOWN
    with pytest.raises(SqlError, match="write it out") as raised:
        restore_secrets(SHOWN.replace(old, new, 1), SCRIPT)
    assert message in raised.value.message and raised.value.line == line
    assert raised.value.snippet == "****"
    assert not any(secret in str(raised.value) for secret in HIDDEN)


def test_ambiguous_secrets_are_refused() -> None:
    made = "CREATE TEMPORARY TABLE t (i INT) WITH ('connector' = 'jdbc', 'password' = '{}');\n"
    twice = made.format("one") + made.format("two")
    with pytest.raises(SqlError, match="write it out"):
        restore_secrets(without_secrets(twice), twice)
    same = made.format("one") * 2
    assert restore_secrets(without_secrets(same), same) == same


def test_stars_without_a_previous_script_are_refused_with_their_position() -> None:
    with pytest.raises(SqlError) as raised:
        restore_secrets("SELECT 1;\nCREATE TABLE t (i INT) WITH ('password' = '****')", "")
    assert (raised.value.line, raised.value.column) == (2, 44)


@pytest.mark.parametrize("piece", ["'password'='****';", "/* ", "'", ";", "SET a.token = ****;\n"])
def test_long_and_malformed_texts_are_read_fast(piece: str) -> None:
    text = piece * (300_000 // len(piece))
    began = time.process_time()
    assert restore_secrets(text, text.replace("****", "once")) == text.replace("****", "once")
    assert time.process_time() - began < 10
