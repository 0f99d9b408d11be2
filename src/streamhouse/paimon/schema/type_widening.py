"""The type changes of a column that lose no value."""

from __future__ import annotations

import re

_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}
_EXACT = {"FLOAT": 5, "DOUBLE": 15}
"""The types that hold every integer of up to so many digits exactly."""
_MOST = 2147483647


def widens(old: str, new: str) -> bool:
    """Whether `new` holds every value of `old`, and both cores read files of `old` as `new`.

    Types are in Flink's spelling. ROW, ARRAY and MAP cannot change as a whole; a field of a ROW can
    be changed by its path.
    """
    one, given = _parts(old)
    two, wanted = _parts(new)
    if old == new:
        return True
    if one in _DIGITS:
        return _holds_integer(one, two, wanted)
    if one == "FLOAT":
        return two == "DOUBLE"
    if one == "DECIMAL":
        scale = wanted[1] - given[1] if two == "DECIMAL" else -1
        return scale >= 0 and wanted[0] - given[0] >= scale
    if one in ("CHAR", "VARCHAR", "STRING"):
        return two in ("VARCHAR", "STRING") and _length(two, wanted) >= _length(one, given)
    if one in ("BINARY", "VARBINARY", "BYTES"):
        return two in ("VARBINARY", "BYTES") and _length(two, wanted) >= _length(one, given)
    if one in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        return two == one and wanted[0] >= given[0]
    return False


def wider(old: str) -> str:
    """The types that `widens` allows, as text for an error message."""
    name, given = _parts(old)
    if name in _DIGITS:
        integers = list(_DIGITS)[list(_DIGITS).index(name) + 1 :]
        floating = [kind for kind, digits in _EXACT.items() if digits >= _DIGITS[name]]
        return ", ".join([*integers, *floating, f"DECIMAL({_DIGITS[name]}, 0) and wider", "STRING"])
    if name == "DECIMAL":
        return f"a DECIMAL with at least {given[0] - given[1]} digits before and {given[1]} behind"
    known = {
        "FLOAT": "DOUBLE",
        "CHAR": f"VARCHAR({_length(name, given)}) and longer, STRING",
        "VARCHAR": f"VARCHAR({_length(name, given)}) and longer, STRING",
        "BINARY": f"VARBINARY({_length(name, given)}) and longer, BYTES",
        "VARBINARY": f"VARBINARY({_length(name, given)}) and longer, BYTES",
    }
    if name in ("TIMESTAMP", "TIMESTAMP_LTZ") and given[0] < 6:
        return f"{name}({given[0] + 1}) to {name}(6)"
    return known.get(name, "no other type; add a column and fill it by a query")


def _holds_integer(one: str, two: str, wanted: tuple[int, ...]) -> bool:
    if two in _DIGITS:
        return _DIGITS[two] >= _DIGITS[one]
    if two in _EXACT:
        return _EXACT[two] >= _DIGITS[one]
    if two == "DECIMAL":
        return wanted[0] - wanted[1] >= _DIGITS[one]
    return two == "STRING"


def _length(name: str, given: tuple[int, ...]) -> int:
    return given[0] if given else _MOST


def _parts(text: str) -> tuple[str, tuple[int, ...]]:
    """Name and sizes: DECIMAL and (10, 2)."""
    name = re.split(r"[(< ]", text.strip().upper(), maxsplit=1)[0]
    inner = re.match(r"[A-Z_]+\(([\d, ]+)\)", text.strip().upper())
    return name, tuple(int(n) for n in inner[1].split(",")) if inner else ()
