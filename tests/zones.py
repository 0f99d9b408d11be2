"""Time zones with days on which clocks change, and their local times by Python's `zoneinfo`."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

ZONES = (
    "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia", "Europe/Berlin",
    "GMT+08:00",
)  # fmt: skip
DAYS = (
    date(2011, 12, 29), date(2011, 12, 30), date(2024, 3, 10), date(2024, 3, 31), date(2024, 4, 7),
    date(2024, 7, 1), date(2024, 10, 6), date(2024, 10, 27), date(2024, 11, 3),
)  # fmt: skip
"""Days on which the clocks of some zones change, or that a zone skips."""


def zone_info(zone: str) -> ZoneInfo:
    return ZoneInfo({"GMT+08:00": "Etc/GMT-8"}.get(zone, zone))


def local(at: datetime, zone: str) -> datetime:
    """The local time of an instant."""
    return at.astimezone(zone_info(zone)).replace(tzinfo=None)


def instant(wall: datetime, zone: str) -> datetime:
    """The instant of a local time as Java has it: `zoneinfo` takes the first one, and skips."""
    return wall.replace(tzinfo=zone_info(zone), fold=0).astimezone(UTC)


def times_of(rng: random.Random, zone: str, each: int = 25) -> list[datetime]:
    """Instants on the `DAYS` and around."""
    return sorted(
        datetime(day.year, day.month, day.day, tzinfo=UTC)
        + timedelta(minutes=rng.randrange(-12 * 12, 36 * 12) * 5, milliseconds=rng.choice((0, 1)))
        for day in DAYS
        for _ in range(each)
    )
