"""The key column that a view without a key of its own has: no reader sees it."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from tests.serving import servers
from tests.unit.views.view_session import ViewSession
from typer.testing import CliRunner

from streamhouse.cli.main import build
from streamhouse.errors import SqlError, TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.spark.datasource import PaimonDataSource
from streamhouse.runtime.session.show_statements import describe
from streamhouse.serve.feeds.table_feed import TableFeed
from streamhouse.serve.settings import StreamSettings
from streamhouse.sql.syntax import Describe, Show, TextPosition
from streamhouse.sql.views.stored_view import HIDDEN_KEY
from streamhouse.thrift.source import served_schema

AT = TextPosition(1, 1)


@pytest.fixture
def shop(tmp_path: Path) -> ViewSession:
    """A warehouse with the view `v`, which has no key of its own, and the row ('DE', 2) in it."""
    shop = ViewSession(tmp_path / "warehouse")
    shop.execute("INSERT INTO customers (id, country) VALUES (1, 'DE'), (2, 'DE')")
    shop.view("v", "SELECT country, COUNT(*) AS n FROM customers GROUP BY country")
    shop.refresh("v")
    shop.execute("DELETE FROM customers WHERE id = 2")
    return shop


def test_statements_do_not_show_it(shop: ViewSession) -> None:
    session = shop.session
    for statement in (
        Show(AT, "", "COLUMNS", ("v",)),
        Show(AT, "", "CREATE TABLE", ("v",)),
        Describe(AT, "", ("v",)),
    ):
        assert HIDDEN_KEY not in str(describe(session, statement))
    for suffix in ("", "$ro", "$audit_log", "$binlog"):
        names = [column.name for column in session.table((f"v{suffix}",)).columns]
        assert names[-2:] == ["country", "n"] and HIDDEN_KEY not in names
        rows = shop.rows(f"SELECT * FROM `v{suffix}`")
        assert [row[-1] for row in rows] in ([2], [(2,)], [])


def test_no_column_has_its_name(shop: ViewSession) -> None:
    with pytest.raises(SqlError, match="'_view_key' is a reserved name"):
        shop.view("w", f"SELECT country AS {HIDDEN_KEY} FROM customers")


def test_sources_and_feeds_do_not_return_it(shop: ViewSession) -> None:
    options = {**shop.warehouse, "path": "shop.v"}
    for rowkind in ("false", "true"):
        schema = PaimonDataSource({**options, "rowkind": rowkind}).schema()
        assert schema.names == ["country", "n", "rowkind"][: 2 + (rowkind == "true")]
    with pytest.raises(TableError, match=r"shop\.v is a materialized view"):
        PaimonDataSource(options).writer(schema, overwrite=False)
    assert PaimonSource(shop.warehouse, "shop.v").schema.names == ["country", "n"]
    assert served_schema(Warehouse(shop.warehouse), "shop.v").names == ["country", "n"]
    with contextlib.closing(TableFeed(Warehouse(shop.warehouse), "shop.v")) as feed:
        assert feed.schema.names == ["country", "n"]
        first = feed.poll()
        shop.refresh("v")
        second = feed.poll()
        assert first is not None and second is not None
        rows = [row for change in (first, second) for part in change.batches
                for row in part.to_pylist()]  # fmt: skip
        assert rows == [
            {"rowkind": "+I", "country": "DE", "n": 2},
            {"rowkind": "-U", "country": "DE", "n": 2},
            {"rowkind": "+U", "country": "DE", "n": 1},
        ]


@pytest.mark.parametrize(
    "words",
    [
        "query|SELECT * FROM shop.v",
        "watch|shop.v|--as-of|1",
        "watch|shop.v|--as-of|1|--format|json",
        "export|shop.v|--to|-|--format|csv",
    ],
)
def test_commands_do_not_print_it(shop: ViewSession, tmp_path: Path, words: str) -> None:
    given = [*words.split("|"), "--warehouse", shop.warehouse["warehouse"]]
    target = tmp_path / "shop.v.csv"
    given = [str(tmp_path) if word == "-" else word for word in given]
    result = CliRunner().invoke(build(given), given)
    text = target.read_text() if target.exists() else result.stdout
    assert result.exit_code == 0, result.output
    assert "DE" in text and HIDDEN_KEY not in text


def test_the_server_does_not_send_it(shop: ViewSession) -> None:
    with servers(Path(shop.warehouse["warehouse"])) as serve:
        server = serve(streams=StreamSettings(every_ms=5))
        paths = ("", "/about", "/schema", "/options", "/snapshots", "/files", "?format=csv")
        for path in ("/openapi.json", "/views", *(f"/views/shop.v{path}" for path in paths)):
            answer = server.get(path)
            assert answer.status_code == 200 and HIDDEN_KEY not in answer.text, path
        about = server.get("/views/shop.v/about").json()
        assert about["materialized"] and about["primary_key"] == []
        assert server.rows("shop.v") == [{"country": "DE", "n": 2}]
        with server.stream("/views/shop.v/changes") as events:
            assert next(events)["rows"] == [{"rowkind": "+I", "country": "DE", "n": 2}]
            shop.refresh("v")
            assert [row["n"] for row in next(events)["rows"]] == [2, 1]
        asked = [server.get("/views/shop.v", columns=HIDDEN_KEY),
                 server.get("/views/shop.v", filter=f"{HIDDEN_KEY} = 'x'"),
                 server.sql(f"SELECT {HIDDEN_KEY} FROM shop.v")]  # fmt: skip
        assert all("there is no column '_view_key'" in answer.text for answer in asked)
