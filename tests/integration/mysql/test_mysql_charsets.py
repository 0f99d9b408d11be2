"""Text of every character set reads as the server converts it, by the snapshot and the binlog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.mysql.history import Database, catch_up
from tests.mysql_server import IS_MYSQL

from streamhouse.errors import SchemaChangeError, TableError
from streamhouse.mysql.charsets import charset_of, charsets_of
from streamhouse.mysql.options import parse
from streamhouse.mysql.values.byte_values import UNICODE
from streamhouse.sql.plan import Column

_HERE = [
    "armscii8", "ascii", "big5", "cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866",
    "cp932", "dec8", "eucjpms", "euckr", *["gb18030"] * IS_MYSQL, "gb2312", "gbk", "geostd8",
    "greek", "hebrew", "hp8", "keybcs2", "koi8r", "koi8u", "latin1", "latin2", "latin5", "latin7",
    "macce", "macroman", "sjis", "swe7", "tis620", "ucs2", "ujis", "utf16", "utf16le", "utf32",
    "utf8mb3", "utf8mb4",
]  # fmt: skip
_BLOCK = 4096
_SESSION = ("SET sql_mode = ''", "SET SESSION group_concat_max_len = 1000000")


def _blocks(charset: str) -> Iterator[tuple[str, str]]:
    """SELECTs of (number, character) for all characters of a character set."""
    if charset in UNICODE:
        last = 65_535 if charset in ("ucs2", "utf8mb3") else 1_114_111
        # Halves of surrogate pairs can be stored in these alone.
        has_halves = charset == "ucs2" or (
            not IS_MYSQL and charset in ("utf32", "utf8mb3", "utf8mb4")
        )
        halves = "" if has_halves else "WHERE seq NOT BETWEEN 55296 AND 57343"
        yield f"CONVERT(CHAR(seq USING utf32) USING {charset})", f"seq_0_to_{last} {halves}"
    else:
        if IS_MYSQL and charset == "ascii":
            # MySQL stores no other bytes.
            yield f"CHAR(seq USING {charset})", "seq_0_to_127"
            return
        yield f"CHAR(seq USING {charset})", "seq_0_to_255"
        for first in (0x0000, 0x8E0000, 0x8F0000):
            ranges = f"seq_{first + 0x8000}_to_{first + 0xFFFF}"
            yield f"CHAR(seq USING {charset})", ranges


def _fill(database: Database, charset: str) -> None:
    """All characters one by one, and as long texts."""
    for text, numbers in _blocks(charset):
        one = f"SELECT seq AS n, {text} AS c FROM {numbers}"
        whole = f"SELECT n, c FROM ({one}) x WHERE CHAR_LENGTH(c) = 1"
        database.run(
            *_SESSION,
            "INSERT INTO t (n, long_text) "
            f"SELECT MIN(n), GROUP_CONCAT(c ORDER BY n SEPARATOR '') FROM ({whole}) y "
            f"GROUP BY n DIV {_BLOCK}",
            f"INSERT INTO t (n, text, padded) SELECT n, c, c FROM ({whole}) y "
            "WHERE n < 300 OR n % 97 = 0",
        )


def _converted(value: bytes | None) -> str | None:
    if value is None:
        return None
    text = value.decode("utf-8", "surrogatepass")
    return "".join("?" if "\ud800" <= char <= "\udfff" else char for char in text)


@pytest.mark.parametrize("charset", _HERE)
def test_every_character_reads_as_the_server_converts_it(database: Database, charset: str) -> None:
    database.run(
        f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, n INT, text VARCHAR(9), "
        f"padded CHAR(9), long_text LONGTEXT) CHARACTER SET {charset}"
    )
    source = database.source("t")
    offset, _ = catch_up(source, source.initial_offset())
    _fill(database, charset)
    _, binlog = catch_up(source, offset)
    fresh = database.source("t")
    _, snapshot = catch_up(fresh, fresh.initial_offset())
    names = ("text", "padded", "long_text")
    selects = ", ".join(f"CAST(CONVERT({name} USING utf8mb4) AS BINARY)" for name in names)
    server = database.run(f"SELECT {selects} FROM t ORDER BY id")
    expected = [tuple(_converted(value) for value in row) for row in server]
    assert len(expected) > (128 if charset == "ascii" else 200)
    assert [tuple(row[name] for name in names) for row in snapshot] == expected
    assert [tuple(row[name] for name in names) for row in binlog] == expected


def test_the_server_has_no_other_character_sets(database: Database) -> None:
    charsets = {row[0] for row in database.run("SHOW CHARACTER SET")}
    assert charsets - {"binary"} == set(_HERE)


def test_collations_are_known_by_number(database: Database) -> None:
    table = "collations" if IS_MYSQL else "collation_character_set_applicability"
    rows = database.run(f"SELECT id, character_set_name FROM information_schema.{table}")
    assert len(rows) > (280 if IS_MYSQL else 1000)
    assert {number: charset_of(number) for number, _ in rows} == dict(rows)
    assert charset_of(100_000) is None


@pytest.fixture(params=["FULL", "MINIMAL", "NO_LOG"])
def metadata(database: Database, request: pytest.FixtureRequest) -> Iterator[str]:
    """The server's setting `binlog_row_metadata`."""
    database.server.execute(f"SET GLOBAL binlog_row_metadata = '{request.param}'")
    yield request.param
    database.server.execute("SET GLOBAL binlog_row_metadata = 'FULL'")


def _both(database: Database, *statements: str) -> list[dict[str, Any]]:
    """The rows that the statements insert into `t`, the same by the binlog and a snapshot."""
    source = database.source("t")
    offset, _ = catch_up(source, source.initial_offset())
    database.run(*statements)
    _, binlog = catch_up(source, offset)
    fresh = database.source("t")
    _, snapshot = catch_up(fresh, fresh.initial_offset())
    assert binlog == snapshot
    return snapshot


_LETTERS = {
    "latin1": "é€", "latin2": "ąß", "cp1251": "бЯ", "cp866": "бЯ", "koi8u": "їБ", "greek": "αΩ",
    "hebrew": "אב", "cp1256": "ابپ", "gbk": "中文", "sjis": "日本ソ", "cp932": "日本①",
    "big5": "中文功", "ujis": "日本", "eucjpms": "日本", "euckr": "한글", "tis620": "กข",
    "swe7": "ÅÄ", "dec8": "é", "macroman": "é∑", "armscii8": "Աբ", "geostd8": "აბ", "keybcs2": "žů",
    "ucs2": "é中", "utf16": "é😀", "utf32": "é😀", "utf8mb3": "é中",
}  # fmt: skip


@pytest.mark.parametrize("charset", list(_LETTERS))
def test_members_of_every_character_set(database: Database, metadata: str, charset: str) -> None:
    first, second = _LETTERS[charset][0], _LETTERS[charset]
    database.run(
        f"CREATE TABLE t (id INT PRIMARY KEY, e ENUM('{first}','{second}x','c'), "
        f"s SET('a','{first}','{second}y')) CHARACTER SET {charset}"
    )
    if metadata != "FULL" and "😀" in second:
        with pytest.raises(TableError, match="column 'e' .* that the server shows as '\\?'"):
            database.source("t")
        return
    rows = _both(database, "INSERT INTO t VALUES (1, 1, 7), (2, 2, 4), (3, 3, 0), (4, NULL, NULL)")
    assert [(row["e"], row["s"]) for row in rows] == [
        (first, f"a,{first},{second}y"),
        (f"{second}x", f"{second}y"),
        ("c", ""),
        (None, None),
    ]


def test_members_with_signs_that_sql_quotes(database: Database, metadata: str) -> None:
    members = ["a,b", "it's", "b\\s", "n\nl", 'q"', "%", "%s", "\x1a", "x\0y", "t\tt", "r\rr",
               " sp", "\\n", "''", "\\'", "'", ",", "(x)", "', '", "ü" * 250]  # fmt: skip
    quoted = [member.replace("\\", "\\\\").replace("'", "''") for member in members]
    enum = ", ".join(f"'{member}'" for member in quoted)
    some = ", ".join(f"'{member}'" for member in quoted if "," not in member)
    database.run(f"CREATE TABLE t (id INT PRIMARY KEY, e ENUM({enum}), s SET({some}))")
    values = ", ".join(f"({number}, {number}, NULL)" for number in range(1, len(members) + 1))
    both = "1 | 4 | 32"
    rows = _both(database, f"INSERT INTO t VALUES {values}, (99, NULL, {both})")
    assert [row["e"] for row in rows[:-1]] == members
    chosen = [member for member in members if "," not in member]
    assert rows[-1]["s"] == ",".join([chosen[0], chosen[2], chosen[5]])


def test_many_members(database: Database, metadata: str) -> None:
    many = [f"member number {number} é" for number in range(1, 701)]
    enum = ", ".join(f"'{member}'" for member in many)
    bits = [f"b{number}" for number in range(64)]
    options = ", ".join(f"'{member}'" for member in bits)
    database.run(f"CREATE TABLE t (id INT PRIMARY KEY, e ENUM({enum}), s SET({options}))")
    rows = _both(
        database,
        "SET sql_mode = ''",
        "INSERT INTO t VALUES (1, 1, 18446744073709551615), (2, 700, 9223372036854775809), "
        "(3, 'wrong', 'wrong'), (4, 256, 256)",
    )
    assert [(row["e"], row["s"]) for row in rows] == [
        (many[0], ",".join(bits)),
        (many[-1], "b0,b63"),
        ("", ""),
        (many[255], "b8"),
    ]


def test_a_set_may_be_declared_as_an_array(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, s SET('a','b','c d'))",
        "INSERT INTO t VALUES (1, 'c d,a'), (2, ''), (3, NULL)",
    )
    declared = [Column("id", "INT"), Column("s", "ARRAY<STRING>")]
    source = database.source("t", declared)
    offset, rows = catch_up(source, source.initial_offset())
    assert [row["s"] for row in rows] == [["a", "c d"], [], None]
    database.run("UPDATE t SET s = 'b' WHERE id = 1")
    assert [row["s"] for row in catch_up(source, offset)[1]] == [["a", "c d"], ["b"]]


def test_text_that_was_logged_in_another_character_set(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20) CHARACTER SET cp1251, "
        "e ENUM('a','é') CHARACTER SET latin1)"
    )
    source = database.source("t")
    offset, _ = catch_up(source, source.initial_offset())
    database.run(
        "INSERT INTO t VALUES (1, 'б', 'é')",
        "ALTER TABLE t MODIFY v VARCHAR(20) CHARACTER SET utf8mb4",
        "INSERT INTO t VALUES (2, 'б😀', 'é')",
        "ALTER TABLE t MODIFY e ENUM('a','é') CHARACTER SET utf8mb4",
        "INSERT INTO t VALUES (3, 'б😀', 'é')",
    )
    for reader in (source, database.source("t")):
        _, rows = catch_up(reader, offset)
        assert [(row["v"], row["e"]) for row in rows] == [
            ("б", "é"),
            ("б😀", "é"),
            ("б😀", "é"),
        ]


@pytest.mark.parametrize("change", ["VARCHAR(20) CHARACTER SET koi8u", "VARBINARY(80)"])
def test_a_change_that_may_lose_characters_ends_the_query(database: Database, change: str) -> None:
    """The server converts the rows that are there, without row events."""
    database.run("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20) CHARACTER SET cp1251)")
    source = database.source("t")
    offset, _ = catch_up(source, source.initial_offset())
    database.run(f"ALTER TABLE t MODIFY v {change}", "INSERT INTO t VALUES (4, 'x')")
    with pytest.raises(SchemaChangeError, match="column 'v'"):
        catch_up(source, offset)


def test_members_that_were_added_are_read_if_the_binlog_has_no_names(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, e ENUM('a'), s SET('a'))")
    database.server.execute("SET GLOBAL binlog_row_metadata = 'MINIMAL'")
    try:
        source = database.source("t")
        offset, _ = catch_up(source, source.initial_offset())
        database.run("ALTER TABLE t MODIFY e ENUM('a','b')", "INSERT INTO t VALUES (1, 'b', 'a')")
        offset, rows = catch_up(source, offset)
        assert [(row["e"], row["s"]) for row in rows] == [("b", "a")]
        database.run(
            "ALTER TABLE t MODIFY s SET('a','b','c')", "INSERT INTO t VALUES (2, 'b', 'c')"
        )
        _, rows = catch_up(database.source("t"), offset)
        assert [(row["e"], row["s"]) for row in rows] == [("b", "c")]
    finally:
        database.server.execute("SET GLOBAL binlog_row_metadata = 'FULL'")


def test_members_of_bytes_are_refused(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, e ENUM('a') CHARACTER SET binary)")
    with pytest.raises(TableError, match="'e' .* character set binary, which cannot be decoded"):
        database.source("t")
    assert database.source("t", [Column("id", "INT")]).schema.names == ["id"]


def test_a_key_that_another_key_reads_as_is_an_error(database: Database) -> None:
    # cp1250 has no character for x'81' and x'83'; the server converts both to a question mark.
    database.run(
        "CREATE TABLE t (k VARCHAR(9) CHARACTER SET cp1250 PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES ('a?', 1), ('é', 2)",
    )
    source = database.source("t")
    offset, rows = catch_up(source, source.initial_offset())
    assert [row["k"] for row in rows] == ["a?", "é"]
    database.run("INSERT INTO t VALUES (x'6181', 3), (x'6183', 4)")
    with pytest.raises(TableError, match=r"column 'k' .* 6181 is not the only cp1250 of its text"):
        catch_up(source, offset)
    fresh = database.source("t")
    with pytest.raises(TableError, match="column 'k' .* only characters that its character set"):
        catch_up(fresh, fresh.initial_offset())
    small = database.source("t", options={"scan.incremental.snapshot.chunk.size": "1"})
    with pytest.raises(TableError, match="column 'k' .* only characters that its character set"):
        catch_up(small, small.initial_offset())


# MySQL stores no halves in others.
@pytest.mark.parametrize(
    ("charset", "half"),
    [("ucs2", "D800")]
    + [("utf8mb4", "EDA080"), ("utf8mb3", "EDBFBF"), ("utf32", "0000DFFF")] * (not IS_MYSQL),
)
def test_half_a_surrogate_pair_in_a_key_is_an_error(
    database: Database, charset: str, half: str
) -> None:
    database.run(
        f"CREATE TABLE t (k VARCHAR(9) CHARACTER SET {charset} PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES ('?', 1), ('é', 2)",
    )
    source = database.source("t")
    offset, rows = catch_up(source, source.initial_offset())
    assert {row["k"] for row in rows} == {"?", "é"}
    database.run(f"INSERT INTO t VALUES (_{charset} x'{half}', 3)")
    with pytest.raises(TableError, match=r"column 'k' .* cannot be read"):
        catch_up(source, offset)
    for size in ("1", "100"):
        fresh = database.source("t", options={"scan.incremental.snapshot.chunk.size": size})
        with pytest.raises(TableError, match="column 'k' .* only characters that its character"):
            catch_up(fresh, fresh.initial_offset())
    table = database.keyed("t")
    read = [row["k"] for batch in table.all_rows() for row in batch.to_pylist()]
    assert sorted(read) == ["?", "?", "é"]
    assert table.rows(["v"], [(3,)]).column("k").to_pylist() == ["?"]
    table.close()


def test_bytes_that_are_no_text_read_as_the_server_converts_them(database: Database) -> None:
    charsets = charsets_of(parse(database.options("t")))
    assert charsets.texts("sjis", [b"\x83\x5c\xb1\\"]) == ["ソｱ\\"]
    if not IS_MYSQL:
        assert charsets.texts("sjis", [b"a\x83", b"\x83b", b"\x83"]) == ["a?", "ッ", "?"]
        return
    with pytest.raises(ValueError, match="is not text of sjis"):
        charsets.texts("sjis", [b"ok\x83"])


def test_long_texts_are_read_as_the_server_converts_them(database: Database) -> None:
    texts = ["é" * length for length in (10, 900_000, 3_000_000)]
    encoded = [text.encode("latin-1") for text in texts]
    charsets = charsets_of(parse(database.options("t")))
    assert charsets.texts("latin1", encoded) == texts
