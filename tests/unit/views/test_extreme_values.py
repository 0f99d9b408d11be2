"""Views keep rows and changes that a key, a tolerance or an order of rows could lose."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.views.view_session import ViewSession

from streamhouse.runtime.views.spec import Strategy

_TABLES = """USE shop;
CREATE TABLE wide (k BIGINT PRIMARY KEY NOT ENFORCED, v INT) WITH ('bucket' = '1');
CREATE TABLE real_keys (k DOUBLE PRIMARY KEY NOT ENFORCED, v INT) WITH ('bucket' = '1');
CREATE TABLE reals (
  id INT PRIMARY KEY NOT ENFORCED, g INT, d DOUBLE, f FLOAT, a ARRAY<STRING>
) WITH ('bucket' = '1');
INSERT INTO wide VALUES (9007199254740992, 1), (9007199254740993, 2);
INSERT INTO real_keys VALUES (CAST(0.0 AS DOUBLE), 1), (CAST('-0.0' AS DOUBLE), 2);
INSERT INTO reals VALUES (1, 1, 9007199254740992, 1, ARRAY['NULL']), (2, 1, 0, 0, ARRAY['a', 'b']),
  (3, 2, 1E15, 1, ARRAY[CAST(NULL AS STRING)]), (4, 3, 1, 1, ARRAY['a, b'])
"""
_VIEWS = {
    # Two BIGINT equal one DOUBLE; 0.0 equals -0.0.
    "wide_join": "SELECT r.id, w.v FROM reals r JOIN wide w ON r.d = w.k",
    "real_join": "SELECT r.id, k.v FROM reals r LEFT JOIN real_keys k ON r.d = k.k",
    "arrays": "SELECT a, COUNT(*) AS n FROM reals GROUP BY a",
    "sums": "SELECT g, SUM(d) AS s, SUM(f) AS f FROM reals WHERE id > 2 GROUP BY g",
    "beside_a_sum": "SELECT id, d, (SELECT SUM(d) FROM reals WHERE id = 4) AS s FROM reals",
}
_CHANGES = (
    "INSERT INTO reals VALUES (5, 2, 1, 1, ARRAY['a']), (4, 3, 1.0000000000000002, 1, ARRAY['a'])",
    "INSERT INTO reals VALUES (2, 1, CAST('-0.0' AS DOUBLE), 0, ARRAY['a', 'b'])",
    "DELETE FROM reals WHERE id = 5",
)

_ORDERED = (
    "FIRST_VALUE(amount)",
    "LAST_VALUE(amount)",
    "JSON_ARRAYAGG(amount)",
    "JSON_OBJECTAGG(KEY CAST(id AS STRING) VALUE amount)",
    "LISTAGG(product)",
    "ARRAY_AGG(amount)",
)


@pytest.mark.parametrize("strategy", ["recompute", "incremental"])
def test_real_changes_are_never_lost(strategy: Strategy, tmp_path: Path) -> None:
    session = ViewSession(tmp_path / "warehouse", strategy)
    session.execute(_TABLES)
    for name, query in _VIEWS.items():
        session.view(name, query)
    for change in ("INSERT INTO reals VALUES (6, 6, 6, 6, ARRAY[''])", *_CHANGES):
        session.execute(f"USE shop; {change}")
        for name, query in _VIEWS.items():
            session.refresh(name)
            expected, actual = (
                sorted(map(repr, session.exact_rows(sql)))
                for sql in (query, f"SELECT * FROM {name}")
            )
            assert actual == expected, name
            assert session.refresh(name) == 0, f"nothing has changed, but a refresh writes: {name}"


def test_one_thread_computes_what_depends_on_the_order_of_rows(tmp_path: Path) -> None:
    session = ViewSession(tmp_path / "warehouse")
    for number, function in enumerate(_ORDERED):
        query = f"SELECT product, {function} AS f FROM orders GROUP BY product"
        assert session.view(f"v{number}", query).ordered, function
    assert not session.view("sums", "SELECT SUM(rate) AS s, MAX(id) AS m FROM orders").ordered
