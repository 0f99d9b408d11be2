"""Decodes MySQL's packed form of DECIMAL, in which nine digits take four bytes."""

from __future__ import annotations

from collections.abc import Callable

_GROUP_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def decimal_groups(precision: int, scale: int) -> list[int]:
    """The bytes of each group of up to nine digits of a DECIMAL."""
    whole = precision - scale
    return [
        _GROUP_BYTES[whole % 9],
        *[4] * (whole // 9),
        *[4] * (scale // 9),
        _GROUP_BYTES[scale % 9],
    ]


def decimal_text_reader(precision: int, scale: int) -> Callable[[bytes], str]:
    """Reads a number: its text with `scale` digits."""
    whole = precision - scale
    sizes = decimal_groups(precision, scale)
    digits = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]
    groups = [pair for pair in zip(sizes, digits, strict=True) if pair[0]]
    size = sum(sizes)
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
