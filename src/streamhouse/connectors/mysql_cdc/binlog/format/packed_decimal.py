"""Decodes MySQL's packed form of DECIMAL, in which nine digits take four bytes."""

from collections.abc import Callable

_GROUP_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def decimal_groups(precision: int, scale: int) -> list[tuple[int, int]]:
    """The bytes and the digits, up to nine, of each group of a DECIMAL."""
    whole = precision - scale
    digits = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]
    return [(_GROUP_BYTES[width], width) for width in digits if width]


def decimal_text_reader(precision: int, scale: int) -> Callable[[bytes], str]:
    """Reads a number: its text with `scale` digits."""
    groups = decimal_groups(precision, scale)
    size = sum(length for length, _ in groups)
    all_bits = (1 << 8 * size) - 1
    sign_bit = 1 << (8 * size - 1)

    def read(data: bytes) -> str:
        # The sign bit is inverted so that bytes sort; a negative number has all bits inverted.
        bits = int.from_bytes(data[:size], "big") ^ sign_bit
        negative = bool(bits & sign_bit)
        raw = (bits ^ all_bits if negative else bits).to_bytes(size, "big")
        text, start = "", 0
        for length, width in groups:
            text += f"{int.from_bytes(raw[start : start + length], 'big'):0{width}d}"
            start += length
        point = len(text) - scale
        shown = (text[:point].lstrip("0") or "0") + (f".{text[point:]}" if scale else "")
        return f"-{shown}" if negative else shown

    return read
