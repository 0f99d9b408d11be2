"""The type changes of a column that lose no value."""

from streamhouse.sql.types import INTEGER_DIGITS, base, digits, number_digits, scale

_EXACT = {"FLOAT": 5, "DOUBLE": 15}
"""The number of decimal digits up to which a type holds every integer exactly."""
_MAX_LENGTH = 2147483647
_LENGTHS = {
    "CHAR": "VARCHAR",
    "VARCHAR": "VARCHAR",
    "BINARY": "VARBINARY",
    "VARBINARY": "VARBINARY",
}
"""Types with a length, and the type of greater lengths."""
_LONGEST = {"VARCHAR": "STRING", "VARBINARY": "BYTES"}


def widens(old: str, new: str) -> bool:
    """Whether `new` holds every value of `old`, and both cores read files of `old` as `new`.

    Types are in Flink's spelling. ROW, ARRAY and MAP cannot change as a whole; a field of a ROW can
    be changed by its path.
    """
    one, two = base(old), base(new)
    if old == new:
        return True
    if one in INTEGER_DIGITS:
        if two == "DECIMAL":
            return _holds(new, *number_digits(old))
        return two == "STRING" or {**INTEGER_DIGITS, **_EXACT}.get(two, 0) >= INTEGER_DIGITS[one]
    if one == "FLOAT":
        return two == "DOUBLE"
    if one == "DECIMAL":
        return two == one and _holds(new, *number_digits(old))
    for wide, longest in _LONGEST.items():
        if one == longest or _LENGTHS.get(one) == wide:
            return two in (wide, longest) and _length(new) >= _length(old)
    return one in ("TIMESTAMP", "TIMESTAMP_LTZ") and two == one and digits(new) >= digits(old)


def widens_in_iceberg(old: str, new: str) -> bool:
    """Whether Iceberg's readers, too, read files of `old` as `new`, which `widens` allows."""
    if base(old) in INTEGER_DIGITS:
        return base(new) in INTEGER_DIGITS
    return base(old) != "DECIMAL" or scale(old) == scale(new)


def wider(old: str) -> str:
    """The types that `widens` allows, as text for an error message."""
    name = base(old)
    if name in INTEGER_DIGITS:
        integers = list(INTEGER_DIGITS)[list(INTEGER_DIGITS).index(name) + 1 :]
        floating = [kind for kind, exact in _EXACT.items() if exact >= INTEGER_DIGITS[name]]
        decimal = f"DECIMAL({INTEGER_DIGITS[name]}, 0) and wider"
        return ", ".join([*integers, *floating, decimal, "STRING"])
    if name == "DECIMAL":
        whole, fraction = number_digits(old)
        return f"a DECIMAL with at least {whole} digits before and {fraction} after the point"
    if name in _LENGTHS:
        wide = _LENGTHS[name]
        return f"{wide}({_length(old)}) and longer, {_LONGEST[wide]}"
    if name in ("TIMESTAMP", "TIMESTAMP_LTZ") and digits(old) < 6:
        return f"{name}({digits(old) + 1}) to {name}(6)"
    return "DOUBLE" if name == "FLOAT" else "no other type; add a column and fill it with a query"


def _holds(decimal: str, whole: int, fraction: int) -> bool:
    """Whether a DECIMAL has that many digits before and after the point."""
    most_whole, most_fraction = number_digits(decimal)
    return most_whole >= whole and most_fraction >= fraction


def _length(text: str) -> int:
    return digits(text, _MAX_LENGTH)
