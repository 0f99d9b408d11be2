"""The `nexmark` connector: its events, computed from their numbers in Nexmark's proportions.

The ids of persons and auctions follow from the number of an event, so that others can refer to
them. Facts from the generator of github.com/nexmark/nexmark; values are random numbers of our own.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.connectors.datagen.connector import GeneratedConnector, GeneratedSource
from streamhouse.connectors.datagen.random_streams import (
    Bits,
    Disorder,
    Numbers,
    RowNumbers,
    random_bits,
    stream_seed,
    unit_interval,
)
from streamhouse.connectors.faker.patterns import regex_texts
from streamhouse.connectors.specs import arrow_schema
from streamhouse.errors import OptionError
from streamhouse.options import DeclaredOptions, OptionValues
from streamhouse.source import Lag, Offset
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


_FIRST_ID, _FIRST_CATEGORY, _CATEGORIES = 1000, 10, 5
_LEAD = 10
"""So many persons and auctions are referred to before they are there."""
_ACTIVE_PERSONS, _OPEN_AUCTIONS = 1000, 100
_HOT = 100
"""Every so many persons and auctions, one is hot."""
_POOL, _CHANNELS = 4096, 10_000
_STATES = "AZ CA ID OR WA WY".split()
_CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond",
           "Seattle", "Kent", "Cheyenne")  # fmt: skip
_FIRST_NAMES = "Peter Paul Luke John Saul Vicky Kate Julie Sarah Deiter Walter".split()
_LAST_NAMES = "Shultz Abrams Spencer White Bartels Walton Smith Jones Noris".split()
_HOT_CHANNELS = "Google Facebook Baidu Apple".split()
Values: TypeAlias = Mapping[str, Callable[[], pa.Array]]
_Mask: TypeAlias = npt.NDArray[np.bool_]
_MAX_BATCH = 1_000_000


class NexmarkOptions:
    """The checked options; raises `OptionError`.

    `rate` is the number of events per second of their own time, at which they are generated, too,
    if `paced`. `total` is the number of events; None: unbounded. `proportions`, and the average
    `sizes` in bytes, are those of persons, auctions and bids. `hot` are the ratios of auctions and
    bidders of bids, and of sellers of auctions.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        values = OptionValues(DECLARED.options, DECLARED.current(given))
        values.check("nexmark")
        self.paced = "rows-per-second" in values
        self.rate: int = values["rows-per-second" if self.paced else "first-event.rate"]
        self.total: int | None = values["events.num"] or None
        self.proportions: list[int] = [values[f"{kind}.proportion"] for kind in KINDS]
        self.sizes: list[int] = [values[f"{kind}.avg-size"] for kind in KINDS]
        hot = "bid.hot-ratio.auctions", "bid.hot-ratio.bidders", "auction.hot-ratio.sellers"
        self.hot: list[int] = [values[key] for key in hot]
        self.group: int = values["out-of-order-group-size"]
        self.seed: str = values["seed"]


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


def event_columns(options: NexmarkOptions, schema: pa.Schema, rows: RowNumbers) -> list[pa.Array]:
    """The columns of events, of which a schema has some."""
    group, numbers = options.group, rows.numbers
    shuffled = numbers // group * group + numbers * 953 % group
    times = rows.due_ms + (shuffled - numbers) * 1000 // options.rate
    persons, auctions, bids = options.proportions
    place = numbers % (persons + auctions + bids)
    kind = (place >= persons).astype(np.int32) + (place >= persons + auctions)

    def column(field: pa.Field) -> pa.Array:
        if field.name == EVENT_TYPE:
            return pa.array(kind)
        number = list(KINDS).index(field.name)
        mask: _Mask = kind == number
        made = _Events(options, RowNumbers(numbers[mask], times[mask], options.seed))
        values = (made.persons, made.auctions, made.bids)[number]
        structs = pa.StructArray.from_arrays(
            [values[part.name]().cast(part.type) for part in field.type], fields=list(field.type)
        )
        return structs.take(pa.array(np.cumsum(mask) - 1, mask=~mask))

    return [column(field).cast(field.type) for field in schema]


class _Events:
    """The values of events of one kind."""

    def __init__(self, options: NexmarkOptions, rows: RowNumbers) -> None:
        self._options, self._rows = options, rows
        self._epoch, self._place = np.divmod(rows.numbers, sum(options.proportions))
        self._auction_places = self._place - options.proportions[0]

    @property
    def persons(self) -> Values:
        return {
            "id": lambda: pa.array(self._last_person + _FIRST_ID),
            "name": lambda: self._joined(" ", self._one_of(_FIRST_NAMES, "first"),
                                         self._one_of(_LAST_NAMES, "last")),
            "emailAddress": lambda: self._joined(
                "", self._text("[a-z]{3,6}", "user"), pa.scalar("@"),
                self._text("[a-z]{3,4}", "domain"), pa.scalar(".com")),
            "creditCard": lambda: self._joined(
                " ", *(self._text("[0-9]{4}", f"card{part}") for part in range(4))),
            "city": lambda: self._one_of(_CITIES, "city"),
            "state": lambda: self._one_of(_STATES, "state"),
            "dateTime": lambda: self._times,
            "extra": lambda: self._extra(0, 70),
        }  # fmt: skip

    @property
    def auctions(self) -> Values:
        span = max(1, 2 * 1000 * _OPEN_AUCTIONS * sum(self._options.proportions)
                   // self._options.proportions[1] // self._options.rate)  # fmt: skip
        return {
            "id": lambda: pa.array(self._last_auction + _FIRST_ID),
            "itemName": lambda: self._text("[a-z ]{3,19}", "item"),
            "description": lambda: self._text("[a-z ]{3,99}", "description"),
            "initialBid": lambda: pa.array(self._initial),
            "reserve": lambda: pa.array(self._initial + self._price("reserve")),
            "dateTime": lambda: self._times,
            "expires": lambda: pa.array(self._rows.due_ms + 1 + self._below(span, "expires")),
            "seller": lambda: self._hot(2, "seller", self._last_person, 0, self._any_person),
            "category": lambda: pa.array(_FIRST_CATEGORY + self._below(_CATEGORIES, "category")),
            "extra": lambda: self._extra(1, 110),
        }

    @property
    def bids(self) -> Values:
        channels, urls = _channels(self._options.seed)
        return {
            "auction": lambda: self._hot(0, "auction", self._last_auction, 0, self._any_auction),
            "bidder": lambda: self._hot(1, "bidder", self._last_person, 1, self._any_person),
            "price": lambda: pa.array(self._price("price")),
            "channel": lambda: channels.take(self._channel),
            "url": lambda: urls.take(self._channel),
            "dateTime": lambda: self._times,
            "extra": lambda: self._extra(2, 32),
        }

    @cached_property
    def _times(self) -> pa.Array:
        return pa.array(self._rows.due_ms).cast(pa.timestamp("ms"))

    @cached_property
    def _last_person(self) -> Numbers:
        """The newest person, counted from 0; of the event itself if it is one."""
        persons = self._options.proportions[0]
        return self._epoch * persons + np.minimum(self._place, persons - 1)

    @cached_property
    def _last_auction(self) -> Numbers:
        """The newest auction, counted from 0; that of the epoch before if a person comes next."""
        auctions, place = self._options.proportions[1], self._auction_places
        before = place < 0
        place = np.where(before, auctions - 1, np.minimum(place, auctions - 1))
        found: Numbers = np.maximum((self._epoch - before) * auctions + place, 0)
        return found

    @cached_property
    def _any_person(self) -> Numbers:
        count = self._last_person + 1
        active = np.minimum(count, _ACTIVE_PERSONS)
        found: Numbers = count - active + self._below(active + _LEAD, "any person")
        return found

    @cached_property
    def _any_auction(self) -> Numbers:
        last = self._last_auction
        first = np.maximum(last - _OPEN_AUCTIONS, 0)
        return first + self._below(last - first + 1 + _LEAD, "any auction")

    @cached_property
    def _initial(self) -> Numbers:
        return self._price("initial")

    @cached_property
    def _channel(self) -> pa.Array:
        """The numbers of channels: half of the bids have a hot one."""
        cold = len(_HOT_CHANNELS) + self._below(_CHANNELS, "channel")
        hot = self._below(len(_HOT_CHANNELS), "hot channel")
        return pa.array(np.where(self._below(2, "is hot channel") > 0, hot, cold))

    def _hot(self, ratio: int, stream: str, last: Numbers, place: int, others: Numbers) -> pa.Array:
        """Ids: most are those of the hot one at or before the last, at a place among `_HOT`."""
        is_hot = self._below(self._options.hot[ratio], f"hot {stream}") > 0
        return pa.array(np.where(is_hot, last // _HOT * _HOT + place, others) + _FIRST_ID)

    def _below(self, bound: int | Numbers, stream: str) -> Numbers:
        bits = self._rows.bits(stream)
        found: Numbers = (bits % np.asarray(bound).astype(np.uint64)).astype(np.int64)
        return found

    def _price(self, stream: str) -> Numbers:
        exponents = unit_interval(self._rows.bits(stream)) * 6
        found: Numbers = np.round(10.0**exponents * 100).astype(np.int64)
        return found

    def _one_of(self, words: Sequence[str], stream: str) -> pa.Array:
        return self._picked(pa.array(words), stream)

    def _text(self, pattern: str, stream: str) -> pa.Array:
        return self._picked(_texts(pattern, self._options.seed), stream)

    def _extra(self, kind: int, size: int) -> pa.Array:
        """Texts that fill an event up to its average size, with a deviation of a fifth."""
        missing = max(0, self._options.sizes[kind] - size)
        spread = round(missing * 0.2)
        pool = _letters(missing - spread, max(1, 2 * spread), self._options.seed)
        return self._picked(pool, "extra")

    def _picked(self, pool: pa.Array, stream: str) -> pa.Array:
        return pool.take(pa.array(self._below(len(pool), stream)))

    def _joined(self, separator: str, *parts: pa.Array) -> pa.Array:
        return pc.binary_join_element_wise(*parts, pa.scalar(separator))


@lru_cache(maxsize=64)
def _texts(pattern: str, seed: str, count: int = _POOL) -> pa.Array:
    """Texts of a pattern, from which those of events are picked."""
    return regex_texts(pattern, count, lambda part: _pool_bits(f"{seed}#{pattern}/{part}", count))


@lru_cache(maxsize=4)
def _letters(least: int, spread: int, seed: str) -> pa.Array:
    """Texts of `least` or more letters, fewer than `least` + `spread`."""
    lengths = least + (_pool_bits(f"{seed}#length", _POOL) % np.uint64(spread)).astype(np.int64)
    letters = _pool_bits(f"{seed}#letters", int(lengths.sum())) % np.uint64(26) + np.uint64(97)
    text, ends = letters.astype(np.uint8).tobytes().decode(), np.cumsum(lengths)
    return pa.array(text[end - length : end] for length, end in zip(lengths, ends, strict=True))


@lru_cache(maxsize=4)
def _channels(seed: str) -> tuple[pa.Array, pa.Array]:
    """The channels of bids, the hot ones first, and their URLs, most of which name the channel."""
    count = len(_HOT_CHANNELS) + _CHANNELS
    path = "https://www\\.nexmark\\.com/[a-z_]{3,4}/[a-z_]{3,4}/[a-z_]{3,4}/item\\.htm\\?query=1"
    urls = _texts(path, seed, count)
    numbers = np.arange(count, dtype=np.int64) - len(_HOT_CHANNELS)
    named = (numbers >= 0) & (_pool_bits(f"{seed}#named", count) % np.uint64(10) > 0)
    ids = (_pool_bits(f"{seed}#id", count) >> np.uint64(33)).astype(np.int64)
    endings = pc.binary_join_element_wise("&channel_id=", pa.array(ids).cast(pa.string()), "")
    urls = pc.binary_join_element_wise(urls, pc.if_else(pa.array(named), endings, ""), "")
    names = [*_HOT_CHANNELS, *(f"channel-{number}" for number in range(_CHANNELS))]
    return pa.array(names), urls


def _pool_bits(name: str, count: int) -> Bits:
    return random_bits(np.arange(count, dtype=np.int64), stream_seed(name, "pool"))


class NexmarkSource(GeneratedSource):
    """Generates the events of Nexmark; without a pace, as many as a batch takes."""

    def __init__(self, columns: Sequence[Column], options: Mapping[str, str]) -> None:
        self._options = given = NexmarkOptions(options)
        schema = arrow_schema(columns)
        columns_of = partial(event_columns, given, schema)
        super().__init__(schema, columns_of, given.rate, given.total, Disorder(seed=given.seed))

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        if self._options.paced:
            return super().latest_offset(start, max_rows)
        done = int(start.get("rows", 0))
        end = done + min(max_rows or _MAX_BATCH, _MAX_BATCH)
        end = end if self._total is None else min(end, self._total)
        if end <= done:
            return start
        # The clock of the first batch sets the times of all events.
        base_ms = int(start.get("base_ms", time.time_ns() // 1_000_000))
        return {"rows": end, "base_rows": 0, "base_ms": base_ms}

    def lag(self, offset: Offset) -> Lag | None:
        if self._options.paced or not offset:
            return super().lag(offset)
        return Lag(rows=None if self._total is None else self._total - int(offset["rows"]))


class _Nexmark(GeneratedConnector):
    name = "nexmark"
    summary = (
        "Generates the persons, auctions and bids of the benchmark Nexmark; a replayed micro-batch "
        "has the same events."
    )
    options = DECLARED.options
    without_effect = DECLARED.without_effect
    scan_note = "all events; needs `events.num`"

    def generated(
        self, columns: Sequence[Column], options: Mapping[str, str], names: Sequence[str] | None
    ) -> NexmarkSource:
        check_columns(columns)
        return NexmarkSource([c for c in columns if names is None or c.name in names], options)


CONNECTOR = _Nexmark()
