"""A server with a views file reveals nothing of the hidden columns and rows, on any path."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import httpx
import pytest
from tests.integration.serve.server import Server
from tests.unit.conftest import Shop
from tests.waiting import DEADLINE_S

from streamhouse.sql.plan import Column

HIDDEN = ("ssn", "salary", "staff", "bonus", "Zed", "918273645")
"""Names and values that no reader of the views is to see."""
VIEWS = """
views:
  - name: hall.board
    table: shop.people
    columns: [name, age]
    filter: "age < 100"
  - name: hall.broken
    table: shop.people
    columns: [name, bonnus]
  - name: hall.few
    table: shop.people
    columns: [name]
    filter: "bonnus > 0"
"""
PEOPLE = (
    Column("name", "STRING"), Column("age", "INT"), Column("bonus", "BIGINT"),
    Column("zone", "STRING"),
)  # fmt: skip
STAFF = (Column("ssn", "STRING"), Column("salary", "DECIMAL(10, 2)"))
BOARD, BROKEN, FEW = "/views/hall.board", "/views/hall.broken", "/views/hall.few"
PATHS = (
    "/views", BOARD, f"{BOARD}/about", f"{BOARD}/snapshots", f"{BOARD}/schema",
    f"{BOARD}/options", f"{BOARD}/files", f"{BOARD}/tags", "/metrics", "/health", "/openapi.json",
    "/views/shop.people", "/views/shop.people/files", "/views/shop.stafff", "/views/hall.boar",
    "/views/hall.board$files", "/views/shop.people$branch_b", "/views/hall.board$branch_b",
    f"{BOARD}?columns=bonuss", f"{BOARD}?columns=bonus", f"{BOARD}?order=bonus",
    f"{BOARD}?filter=bonus%20%3E%200", f"{BOARD}?filter=people.bonus%20%3E%200",
    f"{BOARD}?filter=EXISTS(SELECT%201%20FROM%20shop.staff)", f"{BOARD}?as_of=99",
    f"{BOARD}?filter=name%20IN%20(SELECT%20ssn%20FROM%20shop.staff)", f"{BOARD}?as_of=notag",
    FEW, f"{FEW}/about", f"{FEW}/schema", f"{FEW}/changes", f"{BROKEN}/changes",
    BROKEN, f"{BROKEN}/about", f"{BROKEN}/schema", f"{BROKEN}/snapshots", f"{BROKEN}/files",
    "/pipelines", "/pipelines/x", "/pipelines/x/graph", "/pipelines/x/log",
)  # fmt: skip
QUERIES = (
    "SELECT * FROM hall.board", "SELECT bonus FROM hall.board", "SELECT bonu FROM hall.board",
    "SELECT * FROM shop.people", "SELECT * FROM staf", "SELECT * FROM hall.board$files",
    "SELECT COUNT(*) FROM hall.board /*+ OPTIONS('branch'='b') */",
    "SELECT * FROM hall.few", "SELECT * FROM hall.board, hall.few",
    "SELECT * FROM hall.broken", "SELECT name FROM hall.broken",
    "SELECT board.bonus FROM hall.board", "SELECT people.bonus FROM hall.board",
    "SELECT * FROM hall.board WHERE age > (SELECT MAX(salary) FROM shop.staff)",
)  # fmt: skip
SCRIPTS = (
    "CREATE TABLE t AS SELECT * FROM shop.staff;",
    "SELECT ssnn FROM shop.staff;",
    "INSERT INTO shop.staff SELECT * FROM shop.people;",
    "SELECT * FROM shop.staf;",
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    shop = Shop(tmp_path / "warehouse")
    options = {
        "merge-engine": "aggregation",
        "sequence.field": "bonus",
        "fields.zone.aggregate-function": "last_value",
    }
    people = shop.create("people", PEOPLE, ["name"], options)
    shop.write(people, ("Ann", 30, 918273645, "a"), ("Zed", 130, 1, "b"))
    shop.write(shop.create("staff", STAFF, ["ssn"]), ("918273645", Decimal("1.00")))
    views = tmp_path / "views.yaml"
    views.write_text(VIEWS)
    with Server(shop.path, tmp_path, "--views", str(views)) as started:
        yield started


def test_no_path_reveals_hidden_data(server: Server) -> None:
    with httpx.Client(base_url=server.url, timeout=DEADLINE_S, trust_env=False) as client:
        answers = {path: client.get(path) for path in PATHS}
        asked = {"Content-Type": "application/sql"}
        answers |= {text: client.post("/sql", content=text, headers=asked) for text in QUERIES}
        answers |= {text: client.post("/scripts/check", json={"sql": text}) for text in SCRIPTS}
    for what, answer in answers.items():
        text = answer.text
        for word in what.replace("%20", " ").replace("/", " ").split():
            # What the client has said itself may be repeated.
            for hidden in HIDDEN:
                text = text.replace(hidden, "") if hidden in word else text
        found = [hidden for hidden in HIDDEN if hidden in text]
        assert not found, (what, found, answer.text[:400])
        assert answer.status_code < 500, (what, answer.text)
    assert answers[BOARD].json()["rows"] == [{"name": "Ann", "age": 30}]
    files = answers[f"{BOARD}/files"].json()["files"]
    assert files and {file[key] for file in files for key in ("rows", "bytes")} == {None}
    for path in ("/pipelines", "/pipelines/x", "/pipelines/x/graph", SCRIPTS[0]):
        assert answers[path].status_code == 403
