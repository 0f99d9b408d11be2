"""The texts of MariaDB's UUID, INET4 and INET6 values, which the binlog has as bytes."""

from __future__ import annotations

import re

_ZEROS = re.compile(r"(?:^|:)0(?::0)*(?::|$)")


def uuid_text(data: bytes) -> str:
    """A UUID of 16 bytes, in lower case."""
    digits = data.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def inet4_text(data: bytes) -> str:
    """An address of 4 bytes."""
    return ".".join(map(str, data))


def inet6_text(data: bytes) -> str:
    """An address of 16 bytes, as MariaDB prints it.

    `::` replaces the first of the longest runs of zeros, even a single zero. Addresses that embed
    an IPv4 address end with it.
    """
    groups = [int.from_bytes(data[at : at + 2], "big") for at in range(0, 16, 2)]
    if not any(groups[:5]) and (groups[5] == 0xFFFF or (not groups[5] and groups[6])):
        return ("::ffff:" if groups[5] else "::") + inet4_text(data[12:])
    text = ":".join(f"{group:x}" for group in groups)
    runs = [match.span() for match in _ZEROS.finditer(text)]
    if not runs:
        return text
    start, end = max(runs, key=lambda run: text[run[0] : run[1]].count("0"))
    return text[:start] + "::" + text[end:]
