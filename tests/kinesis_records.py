"""Records as the Kinesis Producer Library aggregates them."""

from __future__ import annotations

import hashlib


class AggregatedRecord:
    """Packs user records of fewer than 100 bytes into one record."""

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._records: list[bytes] = []

    def add(self, data: bytes, hash_key: str | None = None, partition_key: str = "k") -> None:
        """Add a user record; `hash_key`: its explicit hash key, if it has one."""
        at = len(self._records)
        self._keys.append(_field(1, partition_key.encode()))
        indexes = bytes([1 << 3, at])
        if hash_key is not None:
            explicit = sum(key[0] >> 3 == 2 for key in self._keys)
            self._keys.append(_field(2, hash_key.encode()))
            indexes += bytes([2 << 3, explicit])
        self._records.append(_field(3, indexes + _field(3, data)))

    def packed(self) -> bytes:
        """The aggregated record."""
        message = b"".join(self._keys + self._records)
        digest = hashlib.md5(message, usedforsecurity=False).digest()
        return b"\xf3\x89\x9a\xc2" + message + digest


def _field(number: int, data: bytes) -> bytes:
    """A protobuf field of fewer than 128 bytes."""
    return bytes([number << 3 | 2, len(data)]) + data
