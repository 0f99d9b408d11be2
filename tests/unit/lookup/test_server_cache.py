"""The cache of rows found on a server."""

from __future__ import annotations

import pytest

from streamhouse.connectors.jdbc.options import parse
from streamhouse.connectors.registry import declared
from streamhouse.errors import OptionError
from streamhouse.graph.build import graph_of
from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.lookup.strategies.selection import choose
from streamhouse.lookup.strategies.server_lookup import Cache
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.sql.plan import Column, LookupJoin, TableInfo
from streamhouse.sql.statements.script import parse_script

OPTIONS = {"url": "jdbc:mysql://db.example/shop", "table-name": "c", "username": "u",
           "password": "s3cret"}  # fmt: skip
ROWS = (("Ann", 1), ("Bea", 2))


def cache(**given: str) -> Cache:
    partial = {f"lookup.partial-cache.{key.replace('_', '-')}": v for key, v in given.items()}
    return Cache(parse({**OPTIONS, "lookup.cache": "PARTIAL", **partial}))


def test_nothing_is_kept_by_default() -> None:
    none = Cache(parse(OPTIONS))
    none.put((1,), ROWS, 0.0)
    assert none.get((1,), 0.0) is None


def test_the_least_recently_used_key_is_evicted_first() -> None:
    held = cache(max_rows="2")
    for key in (1, 2):
        held.put((key,), ROWS, 0.0)
    assert held.get((1,), 1.0) == ROWS
    held.put((3,), (), 2.0)
    assert (held.get((2,), 3.0), held.get((1,), 3.0), held.get((3,), 3.0)) == (None, ROWS, ())
    assert len(held) == 2


def test_answers_expire_after_they_were_read() -> None:
    held = cache(expire_after_write="10 s")
    held.put((1,), ROWS, 100.0)
    assert held.get((1,), 105.0) == held.get((1,), 109.9) == ROWS
    assert held.get((1,), 110.0) is None
    assert len(held) == 0


def test_answers_expire_after_their_last_use() -> None:
    held = cache(expire_after_access="10 s")
    held.put((1,), ROWS, 100.0)
    assert held.get((1,), 109.0) == held.get((1,), 118.0) == ROWS
    assert held.get((1,), 128.0) is None


def test_missing_keys_can_be_left_out_of_the_cache() -> None:
    held = cache(cache_missing_key="false")
    held.put((1,), (), 0.0)
    held.put((2,), ROWS, 0.0)
    assert (held.get((1,), 0.0), held.get((2,), 0.0)) == (None, ROWS)


def spec(
    strategy: str | None = None, keys_sql: str | None = "SELECT 1", **hint: str
) -> DimensionSpec:
    info = declared(TableInfo(("c", "d", "customers"), (Column("id", "INT"),), connector="jdbc",
                              options={"connector": "jdbc", **OPTIONS}))  # fmt: skip
    options = {key.replace("_", "."): value for key, value in hint.items()}
    lookup = LookupJoin(info, "dim_0", ("id",), ("id",), False, options=options, strategy=strategy,
                        key_columns=("id",), keys_sql=keys_sql)  # fmt: skip
    return DimensionSpec(lookup, TableAddress({}, "d.customers"))


def test_the_plan_shows_the_cache_and_no_secret() -> None:
    assert str(choose(spec())) == "by key from MySQL (cache NONE)"
    described = str(choose(spec("partial", lookup_cache="PARTIAL")))
    assert described == "by key from MySQL (cache PARTIAL, 100,000 keys)"
    assert "s3cret" not in repr(spec())


def test_it_is_drawn_without_secrets() -> None:
    given = ", ".join(f"'{key}' = '{value}'" for key, value in OPTIONS.items())
    script = f"""CREATE TABLE o (id INT, p AS PROCTIME()); CREATE TABLE t (id INT, name STRING);
      CREATE TEMPORARY TABLE c (id INT, name STRING) WITH ('connector' = 'jdbc', {given});
      INSERT INTO t SELECT o.id, c.name FROM o LEFT JOIN c /*+ OPTIONS('lookup.cache' = 'NONE') */
        FOR SYSTEM_TIME AS OF o.p AS c ON o.id = c.id"""
    drawn = graph_of(parse_script(script), None)
    assert "by key from MySQL by id · LEFT" in {edge.label for edge in drawn.edges}
    assert "s3cret" not in repr(drawn) and "db.example" not in repr(drawn)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (spec("full"), "strategy 'full' cannot be used for table customers of connector 'jdbc'"),
        (spec("bucket"), "connector 'mysql-cdc'"),
        (spec(keys_sql=None), "compares id as another type, by which MySQL cannot"),
        (spec(password="x"), "lookup of customers: unknown option 'password'"),
    ],
)
def test_what_cannot_be_looked_up_is_reported(wrong: DimensionSpec, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        choose(wrong)
