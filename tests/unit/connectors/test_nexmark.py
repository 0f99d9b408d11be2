"""The `nexmark` connector: proportions, references between events, repeatability, errors."""

from __future__ import annotations

import datetime
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.connectors.registry import check_declaration, connector
from streamhouse.connectors.specs import SourceSpec
from streamhouse.errors import OptionError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.execute import execute
from streamhouse.sql.plan import Column, TableInfo

_PERSON = "ROW<id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, \
state STRING, `dateTime` TIMESTAMP(3), extra STRING>"
_AUCTION = "ROW<id BIGINT, itemName STRING, description STRING, initialBid BIGINT, \
reserve BIGINT, `dateTime` TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, \
extra STRING>"
_BID = "ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, \
`dateTime` TIMESTAMP(3), extra STRING>"
_COLUMNS = {"event_type": "INT", "person": _PERSON, "auction": _AUCTION, "bid": _BID}
_BASE_MS = 1_700_000_000_000


def _source(columns: dict[str, str], **options: str) -> Any:
    declared = tuple(Column(*column) for column in columns.items())
    given = {key.replace("_", "."): value for key, value in options.items()}
    table = TableInfo(("c", "d", "t"), declared, options=given, connector="nexmark")
    check_declaration(table, "table t")
    return connector("nexmark").source(SourceSpec("nexmark", given, declared), None)


def _read(source: Any, first: int, last: int) -> pa.Table:
    clock = {"base_rows": 0, "base_ms": _BASE_MS}
    parts = source.partitions({"rows": first, **clock}, {"rows": last, **clock}, 2)
    return pa.Table.from_batches([batch for part in parts for batch in source.read(part)])


def _events(count: int, **options: str) -> dict[str, list[Any]]:
    """The events of each kind; in none is another one set."""
    rows = _read(_source(_COLUMNS, **options), 0, count).to_pylist()
    kinds = list(_COLUMNS)[1:]
    for row in rows:
        assert [row[kind] is not None for kind in kinds] == [
            number == row["event_type"] for number in range(3)
        ]
    return {kind: [row[kind] for row in rows if row[kind] is not None] for kind in kinds}


def test_proportions_and_references() -> None:
    events = _events(200_000)
    persons, auctions, bids = events.values()
    assert (len(persons), len(auctions), len(bids)) == (4_000, 12_000, 184_000)
    # Ids are consecutive; at most 10 are referred to before they are there.
    assert [person["id"] for person in persons] == list(range(1_000, 5_000))
    assert [auction["id"] for auction in auctions] == list(range(1_000, 13_000))
    assert all(1_000 <= bid["auction"] < 13_010 for bid in bids)
    assert all(1_000 <= bid["bidder"] < 5_010 for bid in bids)
    hot = {
        "auction": sum(bid["auction"] % 100 == 0 for bid in bids) / len(bids),
        "bidder": sum(bid["bidder"] % 100 == 1 for bid in bids) / len(bids),
        "seller": sum(auction["seller"] % 100 == 0 for auction in auctions) / len(auctions),
    }
    # Half of the bids and three quarters, and one in a hundred of the others.
    assert hot["auction"] == pytest.approx(0.505, abs=0.01)
    assert hot["bidder"] == pytest.approx(0.7525, abs=0.01)
    assert hot["seller"] == pytest.approx(0.7525, abs=0.01)
    assert {auction["category"] for auction in auctions} == set(range(10, 15))
    assert all(auction["expires"] > auction["dateTime"] for auction in auctions)
    assert all(100 <= bid["price"] <= 100_000_000 for bid in bids)
    channels = Counter(bid["channel"] for bid in bids)
    assert channels["Google"] / len(bids) == pytest.approx(0.125, abs=0.01)
    assert len(channels) > 9_000
    named = sum("&channel_id=" in bid["url"] for bid in bids) / len(bids)
    assert named == pytest.approx(0.45, abs=0.01)


def test_options() -> None:
    events = _events(10_000, person_proportion="2", auction_proportion="3", bid_proportion="5")
    assert list(map(len, events.values())) == [2_000, 3_000, 5_000]
    given = {"bid.hot-ratio.auctions": "1", "bid.avg-size": "1kb", "out-of-order-group-size": "10"}
    given["first-event.rate"] = "1000"
    bids = _events(10_000, **given)["bid"]
    assert sum(bid["auction"] % 100 == 0 for bid in bids) / len(bids) < 0.05
    assert sum(len(bid["extra"]) for bid in bids) / len(bids) == pytest.approx(992, abs=10)
    times = [bid["dateTime"] for bid in bids]
    assert times != sorted(times)
    later = zip(times, times[1:], strict=False)
    assert all(b - a > datetime.timedelta(milliseconds=-10) for a, b in later)
    first = datetime.datetime.fromtimestamp(_BASE_MS / 1000, datetime.UTC).replace(tzinfo=None)
    assert max(times) - first == datetime.timedelta(seconds=10)


def test_events_are_the_same_in_every_split_and_for_every_column() -> None:
    source = _source(_COLUMNS, seed="a")
    whole = _read(source, 0, 3_000)
    parts = [_read(source, first, first + 1_000) for first in (0, 1_000, 2_000)]
    assert pa.concat_tables(parts).equals(whole)
    some = _read(_source({"bid": "ROW<price BIGINT>"}, seed="a"), 0, 3_000)
    assert some.column("bid").to_pylist() == [
        bid and {"price": bid["price"]} for bid in whole.column("bid").to_pylist()
    ]
    assert not _read(_source(_COLUMNS, seed="b"), 0, 3_000).equals(whole)


def test_a_source_without_a_pace_takes_as_much_as_is_asked_for() -> None:
    source = _source(_COLUMNS, events_num="5000")
    first = source.latest_offset({}, 3_000)
    second = source.latest_offset(first, 3_000)
    assert (first["rows"], second["rows"], source.finished(second)) == (3_000, 5_000, True)
    assert source.lag(first).rows == 2_000
    assert source.latest_offset(second) == second and second["base_ms"] == first["base_ms"]


def test_the_table_of_nexmark(tmp_path: Path) -> None:
    """The declaration of the benchmark's own scripts."""
    columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
    execute(
        {"warehouse": str(tmp_path)},
        f"""CREATE TEMPORARY TABLE datagen ({columns}, `dateTime` AS CASE
              WHEN event_type = 0 THEN person.`dateTime`
              WHEN event_type = 1 THEN auction.`dateTime` ELSE bid.`dateTime` END,
              WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND) WITH (
              'connector' = 'nexmark', 'first-event.rate' = '1000', 'next-event.rate' = '1000',
              'events.num' = '1000');
            CREATE TABLE prices (auction BIGINT, price BIGINT, at_ TIMESTAMP(3));
            INSERT INTO prices SELECT bid.auction, bid.price, `dateTime` FROM datagen
              WHERE event_type = 2""",
    )
    assert (
        sum(batch.num_rows for batch in Warehouse(str(tmp_path)).table("default.prices").read())
        == 920
    )


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"bids": _BID}, {}, "no event has the column bids"),
        ({"bid": "ROW<price STRING>"}, {}, "bid ROW<auction BIGINT, bidder BIGINT"),
        (_COLUMNS, {"events": "5"}, "unknown option 'events'; did you mean 'events.num'"),
        (_COLUMNS, {"bid_proportion": "0"}, "'bid.proportion'"),
    ],
)
def test_errors(columns: dict[str, str], options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        _source(columns, **options)
