"""The options and the columns of the `nexmark` connector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from streamhouse.connectors.specs import arrow_schema
from streamhouse.errors import OptionError
from streamhouse.options import DeclaredOptions, check_known, integer, memory_bytes
from streamhouse.sql.plan import Column

DECLARED = DeclaredOptions.of(__package__)
_TEXT, _TIME, _ID = pa.string(), pa.timestamp("ms"), pa.int64()
PERSON = {
    "id": _ID, "name": _TEXT, "emailAddress": _TEXT, "creditCard": _TEXT, "city": _TEXT,
    "state": _TEXT, "dateTime": _TIME, "extra": _TEXT,
}  # fmt: skip
AUCTION = {
    "id": _ID, "itemName": _TEXT, "description": _TEXT, "initialBid": _ID, "reserve": _ID,
    "dateTime": _TIME, "expires": _TIME, "seller": _ID, "category": _ID, "extra": _TEXT,
}  # fmt: skip
BID = {
    "auction": _ID, "bidder": _ID, "price": _ID, "channel": _TEXT, "url": _TEXT,
    "dateTime": _TIME, "extra": _TEXT,
}  # fmt: skip
EVENT_TYPE = "event_type"
"""0 for a person, 1 for an auction, 2 for a bid; the columns of the other kinds are null."""
KINDS = {"person": PERSON, "auction": AUCTION, "bid": BID}
"""The columns of events by name, and the types of their fields by name."""


@dataclass(frozen=True)
class NexmarkOptions:
    """The checked options.

    `rate` is the number of events per second of their own time, at which they are generated, too,
    if `paced`. `total` is the number of events; None: unbounded. `proportions`, and the average
    `sizes` in bytes, are those of persons, auctions and bids. `hot` are the ratios of auctions and
    bidders of bids, and of sellers of auctions.
    """

    rate: int
    paced: bool
    total: int | None
    proportions: tuple[int, int, int]
    sizes: tuple[int, int, int]
    hot: tuple[int, int, int]
    group: int
    seed: str

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> NexmarkOptions:
        """Raises `OptionError`."""
        check_known(DECLARED.current(given), [o.key for o in DECLARED.options], "nexmark")
        options = {o.key: o.default for o in DECLARED.options if o.default is not None} | dict(
            given
        )

        def number(key: str, least: int = 1) -> int:
            return integer(key, options[key], least)

        paced = "rows-per-second" in options
        persons, auctions, bids = (number(f"{kind}.proportion") for kind in KINDS)
        sizes = [memory_bytes(f"{kind}.avg-size", options[f"{kind}.avg-size"]) for kind in KINDS]
        return cls(
            number("rows-per-second" if paced else "first-event.rate"),
            paced,
            number("events.num", 0) or None,
            (persons, auctions, bids),
            (sizes[0], sizes[1], sizes[2]),
            (
                number("bid.hot-ratio.auctions"),
                number("bid.hot-ratio.bidders"),
                number("auction.hot-ratio.sellers"),
            ),
            number("out-of-order-group-size"),
            options.get("seed", ""),
        )


def check_columns(columns: Sequence[Column]) -> None:
    """Raise `OptionError` for a column that no event has, or of another type."""
    for field in arrow_schema(columns):
        if not _is_known(field):
            raise OptionError(
                f"nexmark: no event has the column {field.name} {field.type}; the columns are "
                f"{EVENT_TYPE} INT, {', '.join(map(_declared, KINDS))}"
            )


def _is_known(column: pa.Field) -> bool:
    if column.name == EVENT_TYPE:
        return bool(pa.types.is_integer(column.type))
    fields = KINDS.get(column.name, {})
    return pa.types.is_struct(column.type) and all(
        fields.get(part.name) == part.type for part in column.type
    )


def _declared(kind: str) -> str:
    """The column of a kind of events, as SQL declares it."""
    names = {_TEXT: "STRING", _TIME: "TIMESTAMP(3)", _ID: "BIGINT"}
    return f"{kind} ROW<{', '.join(f'{name} {names[t]}' for name, t in KINDS[kind].items())}>"
