"""The definition of a column in a statement, as `information_schema` would describe it."""

from dataclasses import replace

from streamhouse.connectors.mysql_cdc.binlog.sql.tokens import (
    Kind,
    Token,
    TokenCursor,
    UnclearStatement,
)
from streamhouse.mysql.values.types import MySqlColumn

_INTEGERS = {
    **dict.fromkeys(("TINYINT", "INT1", "BOOL", "BOOLEAN"), "tinyint"),
    **dict.fromkeys(("SMALLINT", "INT2"), "smallint"),
    **dict.fromkeys(("MEDIUMINT", "INT3", "MIDDLEINT"), "mediumint"),
    **dict.fromkeys(("INT", "INTEGER", "INT4"), "int"),
    **dict.fromkeys(("BIGINT", "INT8", "SERIAL"), "bigint"),
}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC", "FIXED")
_FIXED_LENGTHS = {"CHAR": "char", "CHARACTER": "char", "BINARY": "binary"}
_LENGTHS = {
    **dict.fromkeys(("VARCHAR", "CHAR VARYING", "CHARACTER VARYING", "VARCHARACTER"), "varchar"),
    "VARBINARY": "varbinary",
}
_WITH_FRACTION = ("DATETIME", "TIMESTAMP", "TIME")
_TEXTS = ("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT")
_BLOBS = ("TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB")
TEXT_BYTES = {
    kind.lower(): (1 << 8 * (index % 4 + 1)) - 1 for index, kind in enumerate(_TEXTS + _BLOBS)
}
"""The longest values of TEXT and BLOB types, in bytes."""
_CHARACTER_BYTES = {
    **dict.fromkeys(("utf8mb4", "utf16", "utf16le", "utf32", "gb18030"), 4),
    **dict.fromkeys(("utf8mb3", "utf8", "ujis", "eucjpms"), 3),
    **dict.fromkeys(("ucs2", "gbk", "gb2312", "big5", "sjis", "cp932", "euckr"), 2),
}
_LONGEST_ROW = 65_532
_DEFAULT_VECTOR = 2048
_LONG_TYPES = ("CHAR", "CHARACTER", "VARCHAR", "VARCHARACTER", "VARBINARY")


def character_bytes(charset: str | None) -> int:
    """The most bytes of a character."""
    return _CHARACTER_BYTES.get(charset or "", 1)


class ColumnSpec:
    """A column's definition in a statement, parsed from the `words` after its type.

    `column` is None if its type is not fully known. `is_key`: it is the primary key. `null`:
    whether it says NULL or NOT NULL; None: neither. `default`: whether existing rows get a value
    other than NULL if the column is added. `binary`: its texts have another character set, which is
    not certain. `unknown`: a part of the definition has an unknown form.
    """

    def __init__(self, words: TokenCursor) -> None:
        self.column: MySqlColumn | None = None
        self.null: bool | None = None
        self.is_key = self.auto_increment = self.generated = self.default = False
        self.binary = self.unknown = False
        self.charset: str | None = None
        self.collation: str | None = None
        while words:
            self._take(words)

    def _take(self, words: TokenCursor) -> None:
        if words.skip("NOT", "NULL"):
            self.null = False
        elif words.skip("NULL"):
            self.null = True
        elif words.skip("DEFAULT"):
            self._default(words)
        elif words.skip("ON", "UPDATE"):
            _skip_call(words)
        elif words.skip("AUTO_INCREMENT"):
            self.auto_increment = True
        elif words.skip("UNIQUE"):
            words.skip("KEY")
        elif words.skip("PRIMARY", "KEY") or words.skip("PRIMARY") or words.skip("KEY"):
            self.is_key = True
        elif words.skip_one("COMMENT", "COLUMN_FORMAT", "STORAGE", "CONSTRAINT", "SRID"):
            if words and words.word() != "CHECK":
                words.take()
        elif words.skip("GENERATED", "ALWAYS"):
            pass
        elif words.skip("AS"):
            words.parenthesized()
            self.generated = True
        elif words.skip("CHECK"):
            words.parenthesized()
        elif words.skip("REFERENCES"):
            self._references(words)
        else:
            self._charset(words)

    def _charset(self, words: TokenCursor) -> None:
        if words.skip("CHARACTER", "SET") or words.skip("CHARSET") or words.skip("CHAR", "SET"):
            self.charset = words.take().text.lower()
        elif words.skip("COLLATE"):
            self.collation = words.take().text.lower()
        elif words.skip("ASCII"):
            self.charset = "latin1"
        elif words.skip_one("BINARY", "BYTE", "UNICODE"):
            self.binary = True
        elif not words.skip_one(*_WITHOUT_MEANING):
            words.take()
            self.unknown = True

    def _default(self, words: TokenCursor) -> None:
        if words.skip("NULL"):
            return
        self.default = True
        if words.word() == "(":
            words.parenthesized()
            return
        words.skip_any("+", "-")
        _skip_call(words)
        if words.skip("."):
            words.take()
        elif words and words.tokens[words.at].kind is Kind.STRING:
            words.take()  # after a character set: _utf8mb4'…'

    @staticmethod
    def _references(words: TokenCursor) -> None:
        words.table("")
        if words.word() == "(":
            words.parenthesized()
        if words.skip("MATCH"):
            words.take()
        while words.skip("ON"):
            words.take()
            action = words.take().text.upper()
            if action in ("SET", "NO"):
                words.take()


def column_spec(name: str, words: TokenCursor, charset: str | None, mariadb: bool) -> ColumnSpec:
    """Parse a column's type and attributes; `charset`: the table's default one."""
    kind = _type_word(words)
    column = _typed(name, kind, words, mariadb)
    spec = ColumnSpec(words)
    if kind == "SERIAL":
        spec.null, spec.auto_increment = False, True
    texts = (*TEXT_BYTES, "char", "varchar", "enum", "set")
    if column is not None and column.data_type in texts:
        column = _with_charset(column, spec, charset)
    timestamp = column is None or column.data_type == "timestamp"
    nullable = spec.null is not False and not spec.is_key
    if column is not None:
        extra = "auto_increment" if spec.auto_increment else ""
        extra = "generated" if spec.generated else extra
        column = replace(column, nullable=nullable, extra=extra)
    # A TIMESTAMP may be NOT NULL and have a default although the statement does not say so.
    spec.default |= not nullable or (timestamp and spec.null is None)
    spec.default |= spec.generated or spec.auto_increment
    if not (spec.unknown or (timestamp and spec.null is None)):
        spec.column = column
    return spec


def _type_word(words: TokenCursor) -> str:
    token = words.take()
    if token.kind is not Kind.WORD:
        raise UnclearStatement
    kind = token.text.upper()
    if kind == "NATIONAL" or (kind == "LONG" and words.word() in _LONG_TYPES):
        return f"{kind} {words.take().text.upper()}"
    if kind == "DOUBLE":
        words.skip("PRECISION")
    if kind in ("CHAR", "CHARACTER", "NCHAR") and words.skip("VARYING"):
        return f"{kind} VARYING"
    return kind


def _arguments(words: TokenCursor) -> list[Token]:
    if words.word() != "(":
        return []
    return [token for token in words.parenthesized() if token.kind is not Kind.SYMBOL]


def _numbers(words: TokenCursor) -> list[int]:
    texts = [token.text for token in _arguments(words)]
    if not all(text.isdigit() for text in texts):
        raise UnclearStatement
    return [int(text) for text in texts]


def _typed(name: str, kind: str, words: TokenCursor, mariadb: bool) -> MySqlColumn | None:
    """The column as the server stores the type; None if that is not certain."""
    if kind in ("ENUM", "SET"):
        arguments = _arguments(words)
        if any(token.kind is not Kind.STRING for token in arguments):
            return None  # a member in hexadecimal, or with a character set
        members = [token.text.rstrip(" ") for token in arguments]
        quoted = ",".join("'" + member.replace("'", "''") + "'" for member in members)
        return MySqlColumn(name, kind.lower(), f"{kind.lower()}({quoted})")
    numbers = _numbers(words)
    sign = _sign(words) or kind == "SERIAL"
    if kind in _INTEGERS:
        base = _INTEGERS[kind]
        width = "(1)" if kind in ("BOOL", "BOOLEAN") or numbers == [1] else ""
        return MySqlColumn(name, base, base + width + " unsigned" * sign)
    if kind in _DECIMALS:
        precision, scale = (*numbers, *(10, 0)[len(numbers) :])
        text = f"decimal({precision or 10},{scale})" + " unsigned" * sign
        return MySqlColumn(name, "decimal", text, precision=precision or 10, scale=scale)
    if kind in ("FLOAT", "DOUBLE", "FLOAT4", "FLOAT8"):
        base = "double" if kind in ("DOUBLE", "FLOAT8") else "float"
        if len(numbers) == 1:
            base, numbers = "double" if numbers[0] > 24 else base, []
        text = base + (f"({numbers[0]},{numbers[1]})" if numbers else "") + " unsigned" * sign
        return MySqlColumn(name, base, text)
    return _other_type(name, kind, numbers, mariadb)


def _other_type(name: str, kind: str, numbers: list[int], mariadb: bool) -> MySqlColumn | None:
    first = numbers[0] if numbers else 0
    if kind == "BIT":
        return MySqlColumn(name, "bit", f"bit({first or 1})")
    if kind in ("DATE", "YEAR"):
        return MySqlColumn(name, kind.lower(), kind.lower())
    if kind in _WITH_FRACTION:
        text = kind.lower() + (f"({first})" if first else "")
        return MySqlColumn(name, kind.lower(), text, fraction=first)
    if kind in _FIXED_LENGTHS:
        base, length = _FIXED_LENGTHS[kind], numbers[0] if numbers else 1
        return MySqlColumn(name, base, f"{base}({length})", length=length)
    if kind in _LENGTHS and numbers and (kind != "VARBINARY" or first <= _LONGEST_ROW):
        base = _LENGTHS[kind]
        return MySqlColumn(name, base, f"{base}({first})", length=first)
    if kind in _TEXTS + _BLOBS and not numbers:
        return MySqlColumn(name, kind.lower(), kind.lower(), length=TEXT_BYTES[kind.lower()])
    if kind == "VECTOR":
        length = numbers[0] if numbers else _DEFAULT_VECTOR
        return MySqlColumn(name, "vector", f"vector({length})", length=4 * length)
    if kind == "JSON" and not mariadb:
        return MySqlColumn(name, "json", "json")
    return None


def _sign(words: TokenCursor) -> bool:
    unsigned = False
    while words.word() in ("UNSIGNED", "ZEROFILL", "SIGNED"):
        unsigned |= words.word() != "SIGNED"
        words.at += 1
    return unsigned


def _with_charset(column: MySqlColumn, spec: ColumnSpec, default: str | None) -> MySqlColumn | None:
    """The column with its character set; None if that is not certain."""
    if column.data_type.endswith("blob"):
        return column
    charset, collation = spec.charset, spec.collation
    if collation is not None and charset is None:
        charset = collation.partition("_")[0]
    charset = charset or default
    if charset in (None, "binary", "default", "uca1400") or spec.binary:
        return None
    charset = "utf8mb3" if charset == "utf8" else charset
    length = column.length
    if column.data_type in ("char", "varchar"):
        length *= character_bytes(charset)
        if length > _LONGEST_ROW:
            return None
    return replace(column, charset=charset, collation=collation, length=length)


_WITHOUT_MEANING = ("VIRTUAL", "STORED", "PERSISTENT", "VISIBLE", "INVISIBLE", "ENFORCED")


def _skip_call(words: TokenCursor) -> None:
    words.take()
    if words.word() == "(":
        words.parenthesized()
