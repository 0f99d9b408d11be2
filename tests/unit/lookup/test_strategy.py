"""Selects the strategy of a lookup, and explains why a requested one is impossible."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.unit.lookup.conftest import Lab, plan, specs_of

from streamhouse.errors import OptionError
from streamhouse.lookup.options import CacheOptions
from streamhouse.lookup.strategies.selection import IN_ORDER, choose
from streamhouse.options import memory_bytes
from streamhouse.sql.plan import Column

COLUMNS = [Column("k", "INT", False), Column("item", "STRING", False), Column("price", "DOUBLE")]
BOTH = "o.k = p.k AND o.item = p.item"


def chosen(
    lab: Lab,
    on: str = BOTH,
    hint: str = "",
    options: Mapping[str, str] | None = None,
    unshuffled: str | None = None,
) -> str:
    """What is chosen for a join with a table of 100 rows, of about 44 bytes each."""
    if "prices" not in lab.warehouse.tables("db"):
        table = lab.make("prices", COLUMNS, ("k", "item"), (), {"bucket": "1"})
        lab.write(table, [(n, "tea", 1.0) for n in range(100)])
    words = f"/*+ LOOKUP('table'='p', {hint}) */" if hint else ""
    query = plan(
        lab,
        f"SELECT {words} o.n, p.price FROM orders AS o "
        f"JOIN prices FOR SYSTEM_TIME AS OF PROCTIME() AS p ON {on}",
    )
    (spec,) = specs_of(lab, query, options)
    return str(choose(spec, unshuffled))


def test_the_rule_depends_on_size_and_key(lab: Lab) -> None:
    assert chosen(lab) == (
        "full cache (100 rows, about 4.3 kB, are within lookup.cache-max-memory-size, 256.0 MB)"
    )
    little = {"lookup.cache-max-memory-size": "4 kb"}
    assert chosen(lab, options=little) == (
        "partial by primary key (100 rows, about 4.3 kB, are more than "
        "lookup.cache-max-memory-size, 4.0 kB)"
    )
    assert chosen(lab, "o.k = p.k", options={"lookup.cache-max-memory-size": "1 kb"}) == (
        "full cache (on local disk: 100 rows, about 2.0 kB, are more than "
        "lookup.cache-max-memory-size, 1.0 kB, and the join compares k, not the whole primary key "
        "(k, item))"
    )


def test_waiting_rows_in_order_overrule_a_hint(lab: Lab) -> None:
    found = chosen(lab, hint="'strategy'='bucket'", unshuffled=IN_ORDER)
    assert found.startswith("full cache (100 rows") and f"; not shuffled: {IN_ORDER}" in found
    with pytest.raises(OptionError, match="strategy 'bucket' cannot be used .*: another reason"):
        chosen(lab, hint="'strategy'='bucket'", unshuffled="another reason")


def test_hints_and_options_are_followed(lab: Lab) -> None:
    assert chosen(lab, hint="'strategy'='partial'") == "partial by primary key (set by hint)"
    partial = {"lookup.cache": "partial"}
    assert chosen(lab, options=partial) == (
        "partial by primary key (set by 'lookup.cache' = 'PARTIAL')"
    )
    assert chosen(lab, hint="'strategy'='full'", options=partial) == ("full cache (set by hint)")


@pytest.mark.parametrize(
    ("on", "message"),
    [
        (
            "o.k = p.k",
            r"compares k, not the whole primary key \(k, item\); or use 'full'",
        ),
        ("CAST(o.k AS DOUBLE) = p.k AND o.item = p.item", "k is compared as another type; CAST"),
    ],
)
def test_partial_needs_the_whole_primary_key(lab: Lab, on: str, message: str) -> None:
    with pytest.raises(OptionError, match=f"hint LOOKUP: strategy 'partial' needs .*{message}"):
        chosen(lab, on, hint="'strategy'='partial'")
    with pytest.raises(OptionError, match="'lookup.cache' = 'PARTIAL' needs"):
        chosen(lab, on, options={"lookup.cache": "PARTIAL"})


def test_a_table_without_a_key_is_kept_whole(lab: Lab) -> None:
    lab.make("prices", COLUMNS, (), (), {})
    with pytest.raises(OptionError, match="table db.prices has no primary key"):
        chosen(lab, hint="'strategy'='partial'")


def test_options_of_the_hint_go_over_the_tables(lab: Lab) -> None:
    table = {"lookup.cache-rows": "5", "lookup.cache-max-disk-size": "2 gb", "bucket": "1"}
    found = CacheOptions.parse(table, {"lookup.cache-rows": "7", "lookup.cache": "memory"})
    assert found == CacheOptions(cache="MEMORY", disk=2 << 30, rows=7)
    assert (memory_bytes("k", "10"), memory_bytes("k", "3kb"), memory_bytes("k", "1 MiB")) == (
        10,
        3072,
        1 << 20,
    )
    with pytest.raises(OptionError, match="'lookup.cache-max-disk-size': 'much' is not a size"):
        CacheOptions.parse({"lookup.cache-max-disk-size": "much"}, {})
    with pytest.raises(OptionError, match="'all' is not one of AUTO, FULL, MEMORY, PARTIAL"):
        CacheOptions.parse({}, {"lookup.cache": "all"})
