"""Formats floating-point numbers as Java does, and so Flink."""

from collections.abc import Callable


def java_double(value: float, shortest: Callable[[float], str] = repr) -> str:
    """The text of a DOUBLE as Java writes it: `1.0E7`, `1.0E-4`, `Infinity`, `NaN`."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    sign = "-" if str(value).startswith("-") else ""
    mantissa, _, exponent = shortest(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = fraction if fraction != "0" else ""
    if not 1e-3 <= abs(value) < 1e7 and value:
        power = int(exponent or 0) + len(whole) - 1
        digits = whole + fraction
        stripped = digits.lstrip("0")
        power -= len(digits) - len(stripped)
        digits = stripped.rstrip("0")
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"
    return f"{sign}{whole}.{fraction or '0'}"


def java_float(value: float) -> str:
    """The text of a FLOAT as Java writes it: the shortest that parses to the same 32 bits."""
    import numpy as np

    def shortest(one: float) -> str:
        return str(np.format_float_scientific(np.float32(one), trim="0"))

    if value and not 1e-3 <= abs(value) < 1e7:
        return java_double(value, shortest)
    return java_double(
        value, lambda number: str(np.format_float_positional(np.float32(number), trim="0"))
    )
