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
from streamhouse.connectors.faker.patterns import picked, regex_texts
from streamhouse.connectors.specs import arrow_schema
from streamhouse.errors import OptionError
from streamhouse.options import DeclaredOptions, OptionValues
from streamhouse.source import Lag, Offset
from streamhouse.sql.plan import Column

DECLARED = DeclaredOptions.of(__package__)
_TEXT, _TIME, _ID = pa.string(), pa.timestamp("ms"), pa.int64()
EVENT_TYPE = "event_type"
"""0 for a person, 1 for an auction, 2 for a bid; the columns of the other kinds are null."""
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
        part.name in fields and fields[part.name][0] == part.type for part in column.type
    )


def _declared(kind: str) -> str:
    """The column of a kind of events, as SQL declares it."""
    names = {_TEXT: "STRING", _TIME: "TIMESTAMP(3)", _ID: "BIGINT"}
    return f"{kind} ROW<{', '.join(f'{name} {names[t]}' for name, (t, _) in KINDS[kind].items())}>"


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
        events = _Events(options, RowNumbers(numbers[mask], times[mask], options.seed))
        structs = pa.StructArray.from_arrays(
            [KINDS[field.name][part.name][1](events).cast(part.type) for part in field.type],
            fields=list(field.type),
        )
        return structs.take(pa.array(np.cumsum(mask) - 1, mask=~mask))

    return [column(field).cast(field.type) for field in schema]


class _Events:
    """The values of events of one kind."""

    def __init__(self, options: NexmarkOptions, rows: RowNumbers) -> None:
        self._options, self._rows = options, rows
        self._epoch, self._place = np.divmod(rows.numbers, sum(options.proportions))
        self._auction_places = self._place - options.proportions[0]

    @cached_property
    def times(self) -> pa.Array:
        return pa.array(self._rows.due_ms).cast(pa.timestamp("ms"))

    @cached_property
    def last_person(self) -> Numbers:
        """The newest person, counted from 0; of the event itself if it is one."""
        persons = self._options.proportions[0]
        return self._epoch * persons + np.minimum(self._place, persons - 1)

    @cached_property
    def last_auction(self) -> Numbers:
        """The newest auction, counted from 0; that of the epoch before if a person comes next."""
        auctions, place = self._options.proportions[1], self._auction_places
        before = place < 0
        place = np.where(before, auctions - 1, np.minimum(place, auctions - 1))
        found: Numbers = np.maximum((self._epoch - before) * auctions + place, 0)
        return found

    @cached_property
    def any_person(self) -> Numbers:
        count = self.last_person + 1
        active = np.minimum(count, _ACTIVE_PERSONS)
        found: Numbers = count - active + self.below(active + _LEAD, "any person")
        return found

    @cached_property
    def any_auction(self) -> Numbers:
        last = self.last_auction
        first = np.maximum(last - _OPEN_AUCTIONS, 0)
        return first + self.below(last - first + 1 + _LEAD, "any auction")

    @cached_property
    def initial(self) -> Numbers:
        return self.price("initial")

    def expires(self) -> Numbers:
        """About as many auctions later as are open at a time."""
        _, auctions, _ = self._options.proportions
        events = sum(self._options.proportions) * _OPEN_AUCTIONS
        span = max(1, 2 * 1000 * events // auctions // self._options.rate)
        return self._rows.due_ms + 1 + self.below(span, "expires")

    @cached_property
    def channels(self) -> list[pa.Array]:
        """The names and the URLs of channels: half of the bids have a hot one."""
        cold = len(_HOT_CHANNELS) + self.below(_CHANNELS, "channel")
        hot = self.below(len(_HOT_CHANNELS), "hot channel")
        numbers = pa.array(np.where(self.below(2, "is hot channel") > 0, hot, cold))
        return [pool.take(numbers) for pool in _channels(self._options.seed)]

    def hot(self, ratio: int, stream: str, last: Numbers, place: int, others: Numbers) -> pa.Array:
        """Ids: most are those of the hot one at or before the last, at a place among `_HOT`."""
        is_hot = self.below(self._options.hot[ratio], f"hot {stream}") > 0
        return pa.array(np.where(is_hot, last // _HOT * _HOT + place, others) + _FIRST_ID)

    def below(self, bound: int | Numbers, stream: str) -> Numbers:
        bits = self._rows.bits(stream)
        found: Numbers = (bits % np.asarray(bound).astype(np.uint64)).astype(np.int64)
        return found

    def price(self, stream: str) -> Numbers:
        exponents = unit_interval(self._rows.bits(stream)) * 6
        found: Numbers = np.round(10.0**exponents * 100).astype(np.int64)
        return found

    def one_of(self, words: Sequence[str], stream: str) -> pa.Array:
        return picked(pa.array(words), self._rows.bits(stream))

    def text(self, pattern: str, stream: str) -> pa.Array:
        return picked(_texts(pattern, self._options.seed), self._rows.bits(stream))

    def extra(self, kind: int, size: int) -> pa.Array:
        """Texts that fill an event up to its average size, with a deviation of a fifth."""
        missing = max(0, self._options.sizes[kind] - size)
        spread = round(missing * 0.2)
        pool = _letters(missing - spread, max(1, 2 * spread), self._options.seed)
        return picked(pool, self._rows.bits("extra"))


def _joined(separator: str, *parts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*parts, separator)


_Columns: TypeAlias = Mapping[str, tuple[pa.DataType, Callable[[_Events], pa.Array]]]
KINDS: Mapping[str, _Columns] = {
    "person": {
        "id": (_ID, lambda e: pa.array(e.last_person + _FIRST_ID)),
        "name": (_TEXT, lambda e: _joined(
            " ", e.one_of(_FIRST_NAMES, "first"), e.one_of(_LAST_NAMES, "last"))),
        "emailAddress": (_TEXT, lambda e: _joined(
            "", e.text("[a-z]{3,6}", "user"), "@", e.text("[a-z]{3,4}", "domain"), ".com")),
        "creditCard": (_TEXT, lambda e: _joined(
            " ", *(e.text("[0-9]{4}", f"card{part}") for part in range(4)))),
        "city": (_TEXT, lambda e: e.one_of(_CITIES, "city")),
        "state": (_TEXT, lambda e: e.one_of(_STATES, "state")),
        "dateTime": (_TIME, lambda e: e.times),
        "extra": (_TEXT, lambda e: e.extra(0, 70)),
    },
    "auction": {
        "id": (_ID, lambda e: pa.array(e.last_auction + _FIRST_ID)),
        "itemName": (_TEXT, lambda e: e.text("[a-z ]{3,19}", "item")),
        "description": (_TEXT, lambda e: e.text("[a-z ]{3,99}", "description")),
        "initialBid": (_ID, lambda e: pa.array(e.initial)),
        "reserve": (_ID, lambda e: pa.array(e.initial + e.price("reserve"))),
        "dateTime": (_TIME, lambda e: e.times),
        "expires": (_TIME, lambda e: pa.array(e.expires())),
        "seller": (_ID, lambda e: e.hot(2, "seller", e.last_person, 0, e.any_person)),
        "category": (_ID, lambda e: pa.array(_FIRST_CATEGORY + e.below(_CATEGORIES, "category"))),
        "extra": (_TEXT, lambda e: e.extra(1, 110)),
    },
    "bid": {
        "auction": (_ID, lambda e: e.hot(0, "auction", e.last_auction, 0, e.any_auction)),
        "bidder": (_ID, lambda e: e.hot(1, "bidder", e.last_person, 1, e.any_person)),
        "price": (_ID, lambda e: pa.array(e.price("price"))),
        "channel": (_TEXT, lambda e: e.channels[0]),
        "url": (_TEXT, lambda e: e.channels[1]),
        "dateTime": (_TIME, lambda e: e.times),
        "extra": (_TEXT, lambda e: e.extra(2, 32)),
    },
}  # fmt: skip
"""The columns of events by name: the type of each field, and what makes its values."""


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


class _Nexmark(GeneratedConnector, declared=DECLARED):
    name = "nexmark"

    def generated(
        self, columns: Sequence[Column], options: Mapping[str, str], names: Sequence[str] | None
    ) -> NexmarkSource:
        check_columns(columns)
        return NexmarkSource([c for c in columns if names is None or c.name in names], options)


CONNECTOR = _Nexmark()
