"""Flink functions without a DuckDB equivalent: Python over Arrow arrays, registered in DuckDB.

`arrow_call` builds a call of one; `register` must be called on the connection that runs the SQL. A
null argument gives null, unless the function takes nulls. An exception in a function ends the
query.
"""

import base64
import binascii
import decimal
import hashlib
import inspect
import re
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType
from sqlglot import exp

from streamhouse.sql.functions import java_times, json_path
from streamhouse.sql.functions.expression_builders import call, cast, text_of
from streamhouse.sql.functions.java_numbers import java_double, java_float
from streamhouse.sql.functions.row_patterns import Matches

PREFIX = "flink_"
_DECIMAL_DIGITS = 2 * 38
_MOST_DOUBLE_DIGITS = 400
"""A DOUBLE has at most so many digits on each side of its decimal point."""
_ARROW: dict[str, pa.DataType] = {
    "BLOB": pa.binary(),
    "DOUBLE": pa.float64(),
    "INTEGER": pa.int32(),
    "TIMESTAMP": pa.timestamp("us"),
    "VARCHAR": pa.string(),
    "MAP(VARCHAR, VARCHAR)": pa.map_(pa.string(), pa.string()),
}


@dataclass(frozen=True)
class ArrowFunction:
    """A Python function that is applied row by row; `parameters` and `result` are DuckDB types."""

    parameters: tuple[str, ...]
    result: str
    compute: Callable[..., Any]
    takes_nulls: bool = False

    @property
    def __signature__(self) -> inspect.Signature:
        return positional(len(self.parameters))

    def __call__(self, *columns: pa.ChunkedArray) -> pa.Array:
        values = (column.to_pylist() for column in columns)
        kind = _ARROW[self.result]
        if self.takes_nulls:
            return pa.array([self.compute(*row) for row in zip(*values, strict=True)], kind)
        return pa.array(
            [None if None in row else self.compute(*row) for row in zip(*values, strict=True)],
            kind,
        )


def positional(count: int) -> inspect.Signature:
    """A signature from which DuckDB takes the number of parameters of a function."""
    kind = inspect.Parameter.POSITIONAL_ONLY
    return inspect.Signature([inspect.Parameter(f"a{n}", kind) for n in range(count)])


def arrow_call(name: str, *args: exp.Expr) -> exp.Expr:
    """A call of one of `FUNCTIONS`, with its arguments cast to the parameter types."""
    function = FUNCTIONS[name]
    assert function.parameters is not None
    pairs = zip(args, function.parameters, strict=True)
    arguments = (text_of(arg) if kind == "VARCHAR" else cast(arg, kind) for arg, kind in pairs)
    return cast(call(PREFIX + name, *arguments), function.result)


_CALLED = re.compile(rf"\b{PREFIX}(\w+)", re.IGNORECASE)


def register(
    connection: duckdb.DuckDBPyConnection,
    sql: str | None = None,
    registered: set[str] | None = None,
) -> None:
    """Register the functions that `sql` calls in a connection; without `sql`, all of them.

    `registered` has the functions that the connection already has; newly registered ones are
    added. The connection must be closed before the process ends.
    """
    if sql is not None and PREFIX not in sql.lower():
        return
    registered = set() if registered is None else registered
    called = FUNCTIONS.keys() if sql is None else {word.lower() for word in _CALLED.findall(sql)}
    for name in called - registered:
        function = FUNCTIONS.get(name)
        if function is None:
            continue
        connection.create_function(
            PREFIX + name,
            function,
            None if function.parameters is None else list(function.parameters),
            function.result,
            type=PythonUDFType.ARROW,
            null_handling=FunctionNullHandling.SPECIAL,
        )
        registered.add(name)


def _average(total: str, count: int, scale: int) -> str:
    """A sum divided by a row count, rounded half away from zero to `scale` decimal places."""
    with decimal.localcontext(prec=_DECIMAL_DIGITS):
        whole = int(Decimal(total).scaleb(scale))
        mean, rest = divmod(abs(whole), count)
        mean += 2 * rest >= count
        return f"{Decimal(mean if whole >= 0 else -mean).scaleb(-scale):f}"


def _to_digits(rounding: str) -> Callable[[float, int], float]:
    """Rounds a DOUBLE to `digits` decimal places, by its shortest decimal text as Java does."""

    def compute(value: float, digits: int) -> float:
        exact = Decimal(repr(value))
        exponent = exact.as_tuple().exponent
        if isinstance(exponent, str) or -exponent <= digits:
            return value
        unit = Decimal(1).scaleb(min(-digits, _MOST_DOUBLE_DIGITS))
        with decimal.localcontext(prec=2 * _MOST_DOUBLE_DIGITS):
            return float(exact.quantize(unit, rounding))

    return compute


def _hash(name: str) -> Callable[[bytes], str]:
    return lambda value: hashlib.new(name, value).hexdigest()


def _initcap(text: str) -> str:
    return re.sub("[A-Za-z0-9]+", lambda word: word[0][0].upper() + word[0][1:].lower(), text)


def _hash_code(text: str) -> int:
    """Java's `String.hashCode`, over UTF-16."""
    code = 0
    units = memoryview(text.encode("utf-16-le")).cast("H")
    for unit in units:
        code = (31 * code + unit) & 0xFFFFFFFF
    return code - (1 << 32) if code >= 1 << 31 else code


_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def _conv(text: str, source: int, target: int) -> str | None:
    """Hive's CONV: convert an unsigned 64-bit number from one base to another.

    A negative target base makes the result signed. None for a base outside of 2 to 36 and for a
    text without leading digits.
    """
    if not (2 <= abs(source) <= 36 and 2 <= abs(target) <= 36):
        return None
    match = re.match(rf"(-?)([{_DIGITS[: abs(source)]}]+)", text.strip().lower())
    if match is None:
        return None
    sign, value = match[1], min(int(match[2], abs(source)), 2**64 - 1)
    if sign and target > 0:
        sign, value = "", -value % 2**64
    elif not sign and target < 0 and value >= 2**63:
        sign, value = "-", 2**64 - value
    return sign + np.base_repr(value, abs(target))


def _parse_url(url: str | None, part: str | None, key: str | None) -> str | None:
    if url is None or part is None:
        return None
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if not parts.scheme:
        return None
    if part == "QUERY" and key is not None:
        match = re.search(rf"(?:^|&){re.escape(key)}=([^&]*)", parts.query)
        return None if match is None else match[1]
    if key is not None:
        return None
    user, at, _ = parts.netloc.rpartition("@")
    host = parts.netloc[len(user) + len(at) :]
    whole_path = parts.path
    file = whole_path + (f"?{parts.query}" if parts.query else "")
    return {
        "HOST": (host.rsplit(":", 1)[0] if port is not None else host) or None,
        "PATH": whole_path,
        "QUERY": parts.query or None,
        "REF": parts.fragment or None,
        "PROTOCOL": parts.scheme,
        "FILE": file,
        "AUTHORITY": parts.netloc or None,
        "USERINFO": user or None,
    }.get(part)


def _map_of(text: str, pairs: str, values: str) -> list[tuple[str, str | None]]:
    entries: dict[str, str | None] = {}
    for pair in re.split(pairs, text) if text else ():
        key, *value = re.split(values, pair, maxsplit=1)
        entries[key] = value[0] if value else None
    return list(entries.items())


_CHARSETS = ("US-ASCII", "ISO-8859-1", "UTF-8", "UTF-16BE", "UTF-16LE", "UTF-16")


def _charset(name: str) -> str:
    if name.upper() not in _CHARSETS:
        raise ValueError(f"character set {name} is not one of {', '.join(_CHARSETS)}")
    return name


def _encode(text: str, charset: str) -> bytes:
    name = _charset(charset).upper()
    if name == "UTF-16":
        return b"\xfe\xff" + text.encode("utf-16-be")
    return text.encode(name, "replace")


def _decode(value: bytes, charset: str) -> str:
    name = _charset(charset).upper()
    if name == "UTF-16" and value[:2] not in (b"\xfe\xff", b"\xff\xfe"):
        name = "UTF-16BE"
    return value.decode(name, "replace")


def _from_base64(value: bytes) -> str | None:
    padding = b"=" * (-len(value) % 4)
    try:
        return base64.b64decode(value + padding, validate=True).decode("utf-8", "replace")
    except binascii.Error:
        return None


def _url_decode(text: str) -> str | None:
    if re.search(r"%(?![0-9a-fA-F]{2})", text):
        return None
    return urllib.parse.unquote_plus(text)


def _split_index(text: str, separator: str, index: int) -> str | None:
    """A part, counted from 0, of Commons Lang's `splitByWholeSeparatorPreserveAllTokens`.

    None if there is no such part.
    """
    parts = text.split(separator) if separator else text.split()
    return parts[index] if 0 <= index < len(parts) else None


def _split_code(text: str, code: int, index: int) -> str | None:
    return _split_index(text, chr(code), index) if 0 < code <= 255 else None


def _instr(text: str, part: str, start: int, nth: int) -> int | None:
    """The position, from 1, of the nth occurrence at or after `start`; 0 if there is none.

    A negative `start` counts from the end and searches backwards.
    """
    if nth <= 0:
        return 0
    if start > 0:
        index = start - 2
        for _ in range(nth):
            index = text.find(part, index + 1)
            if index < 0:
                return 0
        return index + 1
    if start == 0:
        return 0
    index = len(text) + start
    for _ in range(nth):
        index = text.rfind(part, 0, index + len(part)) if index >= 0 else -1
        if index < 0:
            return 0
        index -= 1
    return index + 2


def _regexp_replace(text: str, pattern: str, new: str) -> str | None:
    """Replace the matches by a text, which cannot refer to groups; None for an invalid pattern."""
    try:
        return re.sub(pattern, lambda match: new, text)
    except re.error:
        return None


def _regexp_group(text: str, pattern: str, group: int) -> str | None:
    """The text of a group of the first match; None if the group has not matched."""
    try:
        match = re.search(pattern, text)
        return "" if match is None else match[group]
    except IndexError:
        return None
    except re.error:
        return ""


def _array_join(
    values: list[str | None] | None, separator: str | None, null: str | None
) -> str | None:
    if values is None or separator is None:
        return None
    texts = [null if value is None else value for value in values]
    return separator.join(text for text in texts if text is not None)


_TABLE: dict[str, tuple[str, Callable[..., Any]]] = {
    "average": ("VARCHAR, BIGINT, INTEGER -> VARCHAR", _average),
    "conv": ("VARCHAR, INTEGER, INTEGER -> VARCHAR", _conv),
    "decode": ("BLOB, VARCHAR -> VARCHAR", _decode),
    "double_text": ("DOUBLE -> VARCHAR", java_double),
    "encode": ("VARCHAR, VARCHAR -> BLOB", _encode),
    "float_text": ("FLOAT -> VARCHAR", java_float),
    "format_time": ("BIGINT, INTEGER, VARCHAR -> VARCHAR", java_times.formatted),
    "from_base64": ("BLOB -> VARCHAR", _from_base64),
    "hash_code": ("VARCHAR -> INTEGER", _hash_code),
    "initcap": ("VARCHAR -> VARCHAR", _initcap),
    "instr": ("VARCHAR, VARCHAR, INTEGER, INTEGER -> INTEGER", _instr),
    "json_exists": ("VARCHAR, VARCHAR, VARCHAR -> VARCHAR", json_path.exists),
    "json_kind": ("VARCHAR -> VARCHAR", json_path.kind),
    "json_length": ("VARCHAR, VARCHAR -> INTEGER", json_path.length),
    "json_query": ("VARCHAR, VARCHAR, VARCHAR -> VARCHAR", json_path.query),
    "lower": ("VARCHAR -> VARCHAR", str.lower),
    "map_of": ("VARCHAR, VARCHAR, VARCHAR -> MAP(VARCHAR, VARCHAR)", _map_of),
    "parse_time": ("VARCHAR, VARCHAR -> TIMESTAMP", java_times.parsed),
    "regexp_group": ("VARCHAR, VARCHAR, INTEGER -> VARCHAR", _regexp_group),
    "regexp_replace": ("VARCHAR, VARCHAR, VARCHAR -> VARCHAR", _regexp_replace),
    "replace": ("VARCHAR, VARCHAR, VARCHAR -> VARCHAR", str.replace),
    "reverse": ("VARCHAR -> VARCHAR", lambda text: text[::-1]),
    "round_double": ("DOUBLE, INTEGER -> DOUBLE", _to_digits(decimal.ROUND_HALF_UP)),
    "sha224": ("BLOB -> VARCHAR", _hash("sha224")),
    "sha384": ("BLOB -> VARCHAR", _hash("sha384")),
    "sha512": ("BLOB -> VARCHAR", _hash("sha512")),
    "split_code": ("VARCHAR, INTEGER, INTEGER -> VARCHAR", _split_code),
    "split_index": ("VARCHAR, VARCHAR, INTEGER -> VARCHAR", _split_index),
    "truncate_double": ("DOUBLE, INTEGER -> DOUBLE", _to_digits(decimal.ROUND_DOWN)),
    "upper": ("VARCHAR -> VARCHAR", str.upper),
    "url_decode": ("VARCHAR -> VARCHAR", _url_decode),
}
_OF_NULLS: dict[str, tuple[str, Callable[..., Any]]] = {
    "array_join": ("VARCHAR[], VARCHAR, VARCHAR -> VARCHAR", _array_join),
    "json_value": ("VARCHAR, VARCHAR, VARCHAR, VARCHAR -> VARCHAR", json_path.value),
    "parse_url": ("VARCHAR, VARCHAR, VARCHAR -> VARCHAR", _parse_url),
}
"""Functions that take nulls."""
FUNCTIONS: dict[str, ArrowFunction | Matches] = {
    name: ArrowFunction(tuple(kinds.split(", ")), result, compute, table is _OF_NULLS)
    for table in (_TABLE, _OF_NULLS)
    for name, (signature, compute) in table.items()
    for kinds, _, result in (signature.partition(" -> "),)
} | {"match_rows": Matches(register)}
