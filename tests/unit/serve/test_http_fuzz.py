"""Random requests: no internal errors, no tracebacks and no secrets in responses."""

from __future__ import annotations

import string
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from tests.serving import Serving
from tests.waiting import DEADLINE_S, looks

from streamhouse.serve.tokens import BearerToken, Scope, digest

SECRET = "correct-horse-battery-staple"
PARTS = (
    "SELECT * FROM WHERE GROUP BY ORDER LIMIT JOIN ON AS WITH UNION ALL VALUES CASE WHEN THEN ELSE "
    "END CAST IN EXISTS NOT NULL AND OR ( ) ( ) , . ; ' ` \" -- /* */ /*+ OPTIONS() */ = < > + - / "
    "% || country orders revenue shop.sales shop.orders sales $options scan_0 src COUNT(*) SUM( "
    "UPPER( INTERVAL DATE TIMESTAMP '2024-01-01' FOR SYSTEM_TIME OF FOR SYSTEM_VERSION 1 0 -1 1e9 "
    "'x' '%' LATERAL UNNEST( ARRAY[ ] MAP[ ROW( OVER ( PARTITION RECURSIVE t t.* a AS b ?"
).split()
QUICK = settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    from tests.unit.conftest import Shop

    shop = Shop(tmp_path_factory.mktemp("fuzz") / "warehouse")
    shop.write(shop.sales(), ("Peru", 2, 2.5), ("Chad", 1, 1.5))
    shop.write(shop.orders(), (1, "nut", Decimal("1.10")))
    given = (BearerToken(digest(SECRET), Scope("all")),)
    running = Serving(shop.path, tokens=given, query_s=5.0)
    running.http.headers["Authorization"] = f"Bearer {SECRET}"
    yield running
    for _ in looks():
        # On a busy machine this may take longer than its limit, too.
        answer = running.sql("SELECT COUNT(*) AS n FROM shop.sales")
        if answer.status_code == 200:
            break
    assert answer.json()["rows"] == [{"n": 2}]
    running.close()


def check(server: Serving, answer: Any) -> None:
    # 503 is an answer too: a query that found no turn.
    assert answer.status_code < 500 or answer.status_code == 503, answer.text
    text = answer.text
    assert "Traceback" not in text and SECRET not in text
    assert server.settings.warehouse["warehouse"] not in text
    if answer.status_code >= 400:
        error = answer.json()["error"]
        assert error["code"] and error["message"]


@QUICK
@given(st.lists(st.sampled_from(PARTS), max_size=14).map(" ".join))
def test_sql_fragments(server: Serving, text: str) -> None:
    check(server, server.sql(text))
    check(server, server.sql(f"SELECT {text}"))


@QUICK
@given(st.text(max_size=60), st.text(max_size=20), st.text(max_size=20))
def test_arbitrary_text(server: Serving, one: str, two: str, three: str) -> None:
    check(server, server.sql(one))
    encodable = [text.encode("utf-8", "replace").decode() for text in (one, two, three)]
    check(server, server.get("/views/shop.sales", filter=encodable[0], as_of=encodable[1]))
    check(server, server.get("/views/shop.sales", order=encodable[1], columns=encodable[2]))
    check(server, server.get("/views/shop.sales/changes", last_id=encodable[1] + "?"))
    check(server, server.get(f"/views/{quote(encodable[1], safe='')}x/schema"))


@QUICK
@given(st.text(string.printable, max_size=40))
def test_filter_cannot_break_out_of_its_condition(server: Serving, text: str) -> None:
    check(server, server.get("/views/shop.sales", filter=f"country = 'x' {text}"))


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_documented_operation(server: Serving, mode: GenerationMode) -> None:
    base = str(server.http.base_url).rstrip("/")
    schema = schemathesis.openapi.from_dict(server.get("/openapi.json").json())
    schema.config.update(base_url=base)
    tried = 0
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        if operation.path.endswith("/changes"):
            continue

        @settings(QUICK, max_examples=6)
        @given(case=operation.as_strategy(mode))
        def try_out(case: Any) -> None:
            case.headers = {**(case.headers or {}), "Authorization": f"Bearer {SECRET}"}
            answer = case.call(base_url=base, timeout=DEADLINE_S)
            assert answer.status_code < 500 or answer.status_code == 503, answer.text
            assert "Traceback" not in answer.text and SECRET not in answer.text

        try:
            try_out()
        except Unsatisfiable:
            # It takes nothing that could be wrong.
            assert mode is GenerationMode.NEGATIVE
            continue
        tried += 1
    assert tried >= 5
