"""Readers see every change of a table, also if only a compaction makes it visible."""

from __future__ import annotations

import pytest
from tests.integration.runtime.conftest import CollectedOutput, Shop

from streamhouse.errors import DataLossError
from streamhouse.paimon.changelog.consumers import Consumers, query_consumer
from streamhouse.runtime.audit.audit import audit

pytestmark = pytest.mark.usefixtures("in_threads")

TABLES = {
    "dedup_lookup": "'changelog-producer' = 'lookup'",
    "dedup_full": "'changelog-producer' = 'full-compaction'",
    "first": "'merge-engine' = 'first-row'",
    "sums_input": "'changelog-producer' = 'input', 'merge-engine' = 'aggregation', "
    "'fields.v.aggregate-function' = 'sum'",
    "vectors": "'deletion-vectors.enabled' = 'true'",
}
LOOKUP = "'changelog-producer' = 'lookup'"
FULL = "'changelog-producer' = 'full-compaction'"


def table(name: str, options: str) -> str:
    return (
        f"CREATE TABLE IF NOT EXISTS {name} (k INT PRIMARY KEY NOT ENFORCED, v INT) "
        f"WITH ('bucket' = '2', {options});"
    )


def copy(source: str, target: str, options: str = "'changelog-producer' = 'none'") -> str:
    return f"{table(target, options)} INSERT INTO {target} SELECT k, v FROM {source};"


def values(shop: Shop, name: str) -> dict[int, int]:
    return {row["k"]: row["v"] for row in shop.rows(name)}


def test_tables_that_statements_fill(shop: Shop) -> None:
    shop.do("".join(table(name, options) for name, options in TABLES.items()))
    copies = "".join(copy(name, f"c_{name}") for name in TABLES)
    for rows in ("(1, 1), (2, 2)", "(1, 5), (3, 3)"):
        shop.do("".join(f"INSERT INTO {name} VALUES {rows};" for name in TABLES))
        assert "but for" not in shop.settle_here(copies)
        assert {name: values(shop, f"c_{name}") for name in TABLES} == {
            name: values(shop, name) for name in TABLES
        }
    for name in TABLES:
        assert values(shop, name) == {1: _kept(name), 2: 2, 3: 3}, name
        done = audit(shop.warehouse.options, f"default.c_{name}")
        assert done.equal and done.complete, name


def _kept(name: str) -> int:
    return {"first": 1, "sums_input": 6}.get(name, 5)


def test_two_hops_through_full_compaction(shop: Shop) -> None:
    shop.do(table("src", LOOKUP))
    script = copy("src", "mid", FULL) + copy("mid", "dst")
    for number in range(3):
        shop.do(f"INSERT INTO src VALUES (1, {number}), ({number + 2}, 0)")
        shop.settle_here(script)
        assert values(shop, "dst") == values(shop, "src")


def test_a_table_whose_pipeline_was_stopped(shop: Shop) -> None:
    """Its writer leaves rows in level 0, since nobody has compacted them."""
    shop.do(table("src", "'changelog-producer' = 'none'") + "INSERT INTO src VALUES (1, 1), (2, 2)")
    shop.settle_here(copy("src", "mid", f"{LOOKUP}, 'write-only' = 'true'"), name="a.sql")
    shop.do("ALTER TABLE mid RESET ('write-only')")
    shop.settle_here(copy("mid", "dst"), name="b.sql")
    assert values(shop, "dst") == {1: 1, 2: 2}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (f"{LOOKUP}, 'write-only' = 'true'", "'write-only' = 'true'"),
        (f"{LOOKUP}, 'lookup-wait' = 'false'", "'lookup-wait' = 'false'"),
        (f"{LOOKUP}, 'lookup-compact' = 'gentle'", "'lookup-compact' = 'gentle'"),
        (
            f"{FULL}, 'full-compaction.delta-commits' = '9'",
            "'full-compaction.delta-commits' = '9'",
        ),
        (
            "'deletion-vectors.enabled' = 'true', 'write-only' = 'true'",
            "'write-only' = 'true'",
        ),
    ],
)
def test_rows_that_may_wait_are_counted(shop: Shop, options: str, named: str) -> None:
    shop.do(table("src", options) + "INSERT INTO src VALUES (1, 1), (2, 2), (3, 3)")
    output = shop.settle_here(copy("src", "dst"))
    waits = f"default.src: 3 rows wait for compaction ({named})"
    assert f"caught up, but for {waits}" in output
    assert values(shop, "dst") == {}
    done = audit(shop.warehouse.options, "default.dst")
    assert done.equal and not done.complete
    assert [(one.table, one.waiting_rows) for one in done.unread] == [("default.src", 3)]
    shop.printed("CALL sys.compact(`table` => 'default.src', compact_strategy => 'full')")
    assert "but for" not in shop.settle_here(copy("src", "dst"))
    assert values(shop, "dst") == {1: 1, 2: 2, 3: 3}


@pytest.mark.parametrize(
    "options", ["'deletion-vectors.enabled' = 'true'", "'merge-engine' = 'first-row'"]
)
def test_an_audit_starts_from_a_state_whose_rows_are_visible(shop: Shop, options: str) -> None:
    """Each batch commits rows that a SELECT sees only in the snapshot of a compaction after it."""
    shop.do(table("src", LOOKUP))
    for number in range(3):
        shop.do(f"INSERT INTO src VALUES ({number}, {number})")
        shop.settle_here(copy("src", "dst", options))
    expire = "sys.expire_snapshots(`table` => 'default.src', retain_max => 1, retain_min => 1)"
    shop.printed(f"CALL {expire}")
    shop.do("INSERT INTO src VALUES (3, 3)")
    shop.settle_here(copy("src", "dst", options))
    done = audit(shop.warehouse.options, "default.dst")
    assert done.from_snapshot and done.equal and done.complete
    shop.do("ALTER TABLE dst SET ('write-only' = 'true'); INSERT INTO src VALUES (4, 4)")
    shop.settle_here(copy("src", "dst", f"{options}, 'write-only' = 'true'"))
    done = audit(shop.warehouse.options, "default.dst")
    assert (done.rows, done.equal) == (4, True)
    assert [(one.table, one.waiting_rows) for one in done.unread] == [("default.dst", 1)]


def test_rows_that_may_wait_are_named_when_a_run_is_stopped(shop: Shop) -> None:
    for name in ("waits", "moves"):
        options = f"{LOOKUP}, 'write-only' = 'true'" if name == "waits" else LOOKUP
        shop.do(table(name, options) + f"INSERT INTO {name} VALUES (1, 1), (2, 2)")
    shop.do(table("two", "'changelog-producer' = 'none'"))
    output = CollectedOutput()
    with shop.running_here(copy("waits", "one") + copy("moves", "two"), printed=output) as until:
        until(lambda: len(values(shop, "two")) == 2)
        shop.do("INSERT INTO waits VALUES (3, 3)")
    assert [line for line in output.lines if "wait" in line] == [
        "notice: stopped, but for default.waits: 3 rows wait for compaction ('write-only' = 'true')"
    ]


def test_a_console_select_has_its_table_compacted(shop: Shop) -> None:
    shop.do(table("src", LOOKUP) + "INSERT INTO src VALUES (1, 1), (2, 2)")
    output = shop.settle_here("SELECT k, v FROM src;")
    assert output.count("'rowkind': '+I'") == 2


def test_rows_under_deletion_vectors_are_read_before_their_changelog(shop: Shop) -> None:
    """Their first read begins where no committed row is invisible."""
    raw = "src /*+ OPTIONS('scan.remove-normalize'='true') */"
    options = "'deletion-vectors.enabled' = 'true', 'changelog-producer' = 'input'"
    shop.do(table("src", f"{options}, 'write-only' = 'true'"))
    shop.do("INSERT INTO src VALUES (1, 1)")
    shop.printed("CALL sys.compact(`table` => 'default.src', compact_strategy => 'full')")
    shop.do("INSERT INTO src VALUES (2, 2)")
    shop.settle_here(copy(raw, "dst"))
    shop.do("INSERT INTO src VALUES (3, 3)")
    shop.settle_here(copy(raw, "dst"))
    assert values(shop, "dst") == {1: 1, 2: 2, 3: 3}


def test_a_source_that_is_another_one(shop: Shop) -> None:
    for name in ("src", "other"):
        shop.do(table(name, LOOKUP) + f"INSERT INTO {name} VALUES (1, 1)")
    shop.settle_here(copy("src", "dst"))
    with pytest.raises(DataLossError, match="the query read another table before.*--from-scratch"):
        shop.settle_here(copy("other", "dst"))
    generated = """CREATE TEMPORARY TABLE made (k INT, v INT)
      WITH ('connector' = 'datagen', 'number-of-rows' = '2');"""
    with pytest.raises(DataLossError, match="has read paimon so far.*now reads datagen"):
        shop.settle_here(generated + copy("made", "dst"))
    shop.do("DROP TABLE src;" + table("src", LOOKUP) + "INSERT INTO src VALUES (2, 2)")
    with pytest.raises(DataLossError, match="was dropped and created again"):
        shop.settle_here(copy("src", "dst"))


def test_a_writer_that_lives_compacts_its_table_itself(shop: Shop) -> None:
    shop.do(table("src", LOOKUP) + "INSERT INTO src VALUES (1, 1)")
    shop.settle_here(copy("src", "mid", LOOKUP), name="a.sql")
    table_ = shop.warehouse.table("default.mid")
    user = next(s.commit_user for s in table_.snapshots.newest_first() if s.commit_kind == "APPEND")
    before = table_.latest_snapshot_id()
    assert before is not None
    with shop.running_here(copy("src", "mid", LOOKUP), name="a.sql") as until:
        until(lambda: (Consumers(table_).refreshed_s(query_consumer(user)) or 0) > 0)
        shop.do("INSERT INTO src VALUES (2, 2)")
        until(lambda: len(values(shop, "mid")) == 2)
    shop.settle_here(copy("mid", "dst"), name="b.sql")
    assert values(shop, "dst") == {1: 1, 2: 2}
