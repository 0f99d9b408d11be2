"""Sets of global transaction identifiers (GTIDs), in MySQL's and MariaDB's notation."""

import bisect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_MARIADB = re.compile(r"(\d+)-(\d+)-(\d+)")
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}", re.IGNORECASE)
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_NOT_A_SET = (
    "is not a set of GTIDs; write one such as '0-1-270' (MariaDB: domain-server-sequence, by "
    "commas) or '3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7:9-10' (MySQL)"
)


@dataclass(frozen=True)
class GtidSet:
    """Transactions by origin (MySQL: server UUID, and tag; MariaDB: replication domain).

    `ranges`: for each origin, its disjoint ranges of numbers (first, last), in order. `servers`:
    MariaDB's server id of the last transaction of each domain.
    """

    ranges: Mapping[str, tuple[tuple[int, int], ...]]
    mariadb: bool
    servers: Mapping[str, int]

    def contains(self, origin: str, number: int) -> bool:
        """Whether the transaction is in the set."""
        ranges = self.ranges.get(origin, ())
        at = bisect.bisect_right(ranges, number, key=lambda bounds: bounds[0]) - 1
        return at >= 0 and number <= ranges[at][1]

    def includes(self, other: Self) -> bool:
        """Whether the set has all transactions of another set."""
        return all(
            any(low <= first and last <= high for low, high in self.ranges.get(origin, ()))
            for origin, ranges in other.ranges.items()
            for first, last in ranges
        )

    def with_one(self, origin: str, number: int, server: int) -> Self:
        """The set with one more transaction, of a MariaDB server with the id `server`."""
        if self.mariadb:
            ranges = {**self.ranges, origin: ((0, number),)}
            return replace(self, ranges=ranges, servers={**self.servers, origin: server})
        merged = merged_ranges([*self.ranges.get(origin, ()), (number, number)])
        return replace(self, ranges={**self.ranges, origin: merged})

    def __str__(self) -> str:
        if self.mariadb:
            return ",".join(
                f"{origin}-{self.servers[origin]}-{ranges[-1][1]}"
                for origin, ranges in sorted(self.ranges.items())
            )
        return ",".join(
            ":".join([origin, *(f"{a}-{b}" if a < b else str(a) for a, b in ranges)])
            for origin, ranges in sorted(self.ranges.items())
        )


def parse_gtids(text: str) -> GtidSet:
    """A set in MySQL's or MariaDB's notation; raises `ValueError` if it is neither."""
    parts = [part.strip() for part in text.replace("\n", "").split(",")]
    parts = [part for part in parts if part]
    matches = [_MARIADB.fullmatch(part) for part in parts]
    if parts and all(matches):
        return mariadb_set((int(m[1]), int(m[2]), int(m[3])) for m in matches if m is not None)
    ranges: dict[str, list[tuple[int, int]]] = {}
    for part in parts:
        server, *pieces = (piece.strip().lower() for piece in part.split(":"))
        if not _UUID.fullmatch(server) or not pieces or _TAG.fullmatch(pieces[-1]):
            raise ValueError(f"'{text}' {_NOT_A_SET}")
        origin = server
        for piece in pieces:
            if _TAG.fullmatch(piece):
                origin = tagged_origin(server, piece)
                continue
            match = _RANGE.fullmatch(piece)
            if match is None or int(match[2] or match[1]) < int(match[1]):
                raise ValueError(f"'{text}' {_NOT_A_SET}")
            ranges.setdefault(origin, []).append((int(match[1]), int(match[2] or match[1])))
    if not parts:
        raise ValueError(f"'{text}' {_NOT_A_SET}")
    return GtidSet({origin: merged_ranges(found) for origin, found in ranges.items()}, False, {})


def known_gtids(text: str | None, mariadb: bool) -> GtidSet | None:
    """A set, which may be empty; None if it is not known."""
    return parse_gtids(text) if text else None if text is None else GtidSet({}, mariadb, {})


def tagged_origin(server: str, tag: str) -> str:
    """The origin of a server's transactions with a tag, which MySQL numbers apart; '' for none."""
    return f"{server}:{tag}" if tag else server


def mariadb_set(last: Iterable[tuple[int, int, int]]) -> GtidSet:
    """MariaDB's set up to one (domain, server id, sequence number) for each domain."""
    highest: dict[str, tuple[int, int]] = {}
    for domain, server, number in last:
        highest[str(domain)] = max(highest.get(str(domain), (0, 0)), (number, server))
    return GtidSet(
        {domain: ((0, number),) for domain, (number, _) in highest.items()},
        True,
        {domain: server for domain, (_, server) in highest.items()},
    )


def merged_ranges(ranges: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Ranges in order; adjacent and overlapping ones are merged."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


def owned_gtids(text: str) -> set[str]:
    """The GTIDs in a value of MySQL's `gtid_owned`, each with the threads that own it.

    A transaction owns its GTID from before it is logged until SELECTs see it.
    """
    found = set()
    for part in re.sub(r"\s", "", text).split(","):
        origin = ""
        for word in part.split(":"):
            if "#" in word:
                found.add(f"{origin}:{word}")
            else:
                origin = f"{origin.partition(':')[0]}:{word}" if origin else word
    return found
