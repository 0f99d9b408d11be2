"""The type changes of a column that lose no value."""

from __future__ import annotations

import re

_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}
_EXACT = {"FLOAT": 5, "DOUBLE": 15}
"""The number of decimal digits up to which a type holds every integer exactly."""
_MAX_LENGTH = 2147483647


def widens(old: str, new: str) -> bool:
    """Whether `new` holds every value of `old`, and both cores read files of `old` as `new`.

    Types are in Flink's spelling. ROW, ARRAY and MAP cannot change as a whole; a field of a ROW can
    be changed by its path.
    """
    old_name, old_sizes = _name_and_sizes(old)
    new_name, new_sizes = _name_and_sizes(new)
    if old == new:
        return True
    if old_name in _DIGITS:
        return _holds_integer(old_name, new_name, new_sizes)
    if old_name == "FLOAT":
        return new_name == "DOUBLE"
    if old_name == "DECIMAL":
        scale = new_sizes[1] - old_sizes[1] if new_name == "DECIMAL" else -1
        return scale >= 0 and new_sizes[0] - old_sizes[0] >= scale
    if old_name in ("CHAR", "VARCHAR", "STRING"):
        return new_name in ("VARCHAR", "STRING") and _length(new_name, new_sizes) >= _length(
            old_name, old_sizes
        )
    if old_name in ("BINARY", "VARBINARY", "BYTES"):
        return new_name in ("VARBINARY", "BYTES") and _length(new_name, new_sizes) >= _length(
            old_name, old_sizes
        )
    if old_name in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        return new_name == old_name and new_sizes[0] >= old_sizes[0]
    return False


def widens_in_iceberg(old: str, new: str) -> bool:
    """Whether Iceberg's readers, too, read files of `old` as `new`, which `widens` allows."""
    old_name, old_sizes = _name_and_sizes(old)
    new_name, new_sizes = _name_and_sizes(new)
    if old_name in _DIGITS:
        return new_name in _DIGITS
    return old_name != "DECIMAL" or old_sizes[1] == new_sizes[1]


def wider(old: str) -> str:
    """The types that `widens` allows, as text for an error message."""
    name, sizes = _name_and_sizes(old)
    if name in _DIGITS:
        integers = list(_DIGITS)[list(_DIGITS).index(name) + 1 :]
        floating = [kind for kind, digits in _EXACT.items() if digits >= _DIGITS[name]]
        return ", ".join([*integers, *floating, f"DECIMAL({_DIGITS[name]}, 0) and wider", "STRING"])
    if name == "DECIMAL":
        whole, fraction = sizes[0] - sizes[1], sizes[1]
        return f"a DECIMAL with at least {whole} digits before and {fraction} after the point"
    wider_types = {
        "FLOAT": "DOUBLE",
        "CHAR": f"VARCHAR({_length(name, sizes)}) and longer, STRING",
        "VARCHAR": f"VARCHAR({_length(name, sizes)}) and longer, STRING",
        "BINARY": f"VARBINARY({_length(name, sizes)}) and longer, BYTES",
        "VARBINARY": f"VARBINARY({_length(name, sizes)}) and longer, BYTES",
    }
    if name in ("TIMESTAMP", "TIMESTAMP_LTZ") and sizes[0] < 6:
        return f"{name}({sizes[0] + 1}) to {name}(6)"
    return wider_types.get(name, "no other type; add a column and fill it with a query")


def _holds_integer(old_name: str, new_name: str, new_sizes: tuple[int, ...]) -> bool:
    if new_name in _DIGITS:
        return _DIGITS[new_name] >= _DIGITS[old_name]
    if new_name in _EXACT:
        return _EXACT[new_name] >= _DIGITS[old_name]
    if new_name == "DECIMAL":
        return new_sizes[0] - new_sizes[1] >= _DIGITS[old_name]
    return new_name == "STRING"


def _length(name: str, sizes: tuple[int, ...]) -> int:
    return sizes[0] if sizes else _MAX_LENGTH


def _name_and_sizes(text: str) -> tuple[str, tuple[int, ...]]:
    """Name and sizes: DECIMAL and (10, 2)."""
    name = re.split(r"[(< ]", text.strip().upper(), maxsplit=1)[0]
    inner = re.match(r"[A-Z_]+\(([\d, ]+)\)", text.strip().upper())
    return name, tuple(int(n) for n in inner[1].split(",")) if inner else ()
