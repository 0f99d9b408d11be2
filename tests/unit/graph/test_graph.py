"""`streamhouse graph` draws a script's tables and queries, and creates none."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from tests.documents import ROOT
from typer.testing import CliRunner

from streamhouse.cli.main import build
from streamhouse.errors import OptionError, SqlError, TableError, UnsupportedSqlError
from streamhouse.graph.build import graph_of
from streamhouse.graph.layout import Box, place
from streamhouse.graph.model import Graph, QueryNode
from streamhouse.graph.svg import draw
from streamhouse.graph.text import render
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.execute import execute
from streamhouse.sql.statements.script import parse_script

WAREHOUSE = """
CREATE DATABASE m; USE m;
CREATE TEMPORARY TABLE src_order (id INT PRIMARY KEY NOT ENFORCED, agent_id INT, amount INT)
  WITH ('connector' = 'mysql-cdc', 'hostname' = 'db.example', 'username' = 'reader',
        'password' = 'hidden-word', 'database-name' = 'crm', 'table-name' = 'orders');
CREATE TABLE ods_order (id INT PRIMARY KEY NOT ENFORCED, agent_id INT, amount INT,
  p AS PROCTIME());
CREATE TABLE dim_agent (id INT PRIMARY KEY NOT ENFORCED, name STRING);
CREATE TABLE dwd_order (id INT PRIMARY KEY NOT ENFORCED, agent STRING, amount INT);
CREATE TABLE app_board (agent STRING PRIMARY KEY NOT ENFORCED, amount INT);
INSERT INTO dim_agent VALUES (1, 'Ann');
INSERT INTO ods_order SELECT id, agent_id, amount FROM src_order;
INSERT INTO dwd_order SELECT o.id, a.name, o.amount FROM ods_order AS o
  LEFT JOIN dim_agent FOR SYSTEM_TIME AS OF o.p AS a ON o.agent_id = a.id;
INSERT INTO app_board SELECT agent, amount FROM dwd_order;
SELECT id FROM dwd_order;
UPDATE dim_agent SET name = 'Bea' WHERE id = 1;
"""


def graph(text: str, warehouse: Mapping[str, str] | None = None) -> Graph:
    return graph_of(parse_script(text), warehouse)


def displayed(found: Graph, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(render(found))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def edges(found: Graph) -> set[tuple[str, str, str]]:
    names = {
        node.id: f"{node.name}:{node.line}" if isinstance(node, QueryNode) else node.name
        for node in found.nodes
    }
    return {(names[edge.start], edge.kind, names[edge.end]) for edge in found.edges}


def test_rows_go_from_sources_through_the_layers() -> None:
    assert edges(graph(WAREHOUSE)) == {
        ("INSERT VALUES:11", "writes", "dim_agent"),
        ("src_order", "reads", "INSERT:12"),
        ("INSERT:12", "writes", "ods_order"),
        ("ods_order", "reads", "INSERT:13"),
        ("dim_agent", "looks up", "INSERT:13"),
        ("INSERT:13", "writes", "dwd_order"),
        ("dwd_order", "reads", "INSERT:15"),
        ("INSERT:15", "writes", "app_board"),
        ("dwd_order", "reads", "SELECT:16"),
        ("UPDATE:17", "writes", "dim_agent"),
    }


def test_a_view_has_its_tree_of_operators() -> None:
    sales = WAREHOUSE + "CREATE MATERIALIZED VIEW sales AS SELECT COUNT(*) AS n FROM dwd_order;"
    (view,) = (node for node in graph(sales).nodes if node.name == "VIEW")
    assert isinstance(view, QueryNode)
    assert [line.strip("└─ ").split()[0] for line in view.plan] == ["sink", "aggregate:", "scan"]


def test_nodes_say_what_they_are() -> None:
    record = graph(WAREHOUSE).record()
    nodes = {node["id"]: node for node in record["nodes"]}
    assert nodes["m.src_order"]["kind"] == "source"
    assert nodes["m.src_order"]["details"] == ("mysql-cdc", "crm.orders")
    assert nodes["m.dwd_order"]["layer"] == "dwd"
    assert nodes["query 2"] == {
        "id": "query 2", "kind": "continuous", "name": "INSERT", "file": None, "line": 12,
        "details": (), "plan": (),
    }  # fmt: skip
    assert {node["kind"] for node in record["nodes"] if node["id"].startswith("query")} == {
        "continuous", "bounded", "console",
    }  # fmt: skip
    (lookup,) = (edge for edge in record["edges"] if edge["kind"] == "looks up")
    assert lookup["from"] == "m.dim_agent"
    assert "by id" in lookup["label"] and "LEFT" in lookup["label"]


def test_batch_mode_and_statement_sets_are_understood() -> None:
    found = graph(
        "CREATE TABLE a (i INT); CREATE TABLE b (i INT); CREATE TABLE c (i INT);"
        "EXECUTE STATEMENT SET BEGIN INSERT INTO b SELECT i FROM a; INSERT INTO c SELECT i FROM a;"
        "END; SET 'execution.runtime-mode' = 'batch';"
        "INSERT OVERWRITE a SELECT b.i FROM b JOIN c ON b.i = c.i;"
    )
    kinds = [(n.name, n.kind) for n in found.nodes if isinstance(n, QueryNode)]
    assert kinds == [
        ("INSERT", "continuous"), ("INSERT", "continuous"), ("INSERT OVERWRITE", "bounded"),
    ]  # fmt: skip
    assert ("b", "reads", "INSERT OVERWRITE:1") in edges(found)
    assert displayed(found).count("INSERT line 1") == 2


def test_definitions_are_followed_without_being_made(tmp_path: Path) -> None:
    found = graph(
        "CREATE TABLE a (i INT); ALTER TABLE a ADD (j INT); ALTER TABLE a RENAME i TO k;"
        "CREATE TABLE b (x INT, y INT); ALTER TABLE b RENAME TO c;"
        "CREATE TABLE gone (i INT); DROP TABLE gone; CREATE TABLE gone (z INT);"
        "INSERT INTO c SELECT k, j FROM a; INSERT INTO gone SELECT k FROM a",
        {"warehouse": str(tmp_path / "new")},
    )
    assert {node.name for node in found.nodes if not isinstance(node, QueryNode)} == {
        "a", "c", "gone",
    }  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_views_are_drawn_between_tables_and_queries(tmp_path: Path) -> None:
    found = graph(
        "CREATE TABLE a (i INT, j INT); CREATE TABLE b (i INT); CREATE TABLE c (i INT);"
        "CREATE VIEW v AS SELECT i FROM a WHERE j > 0; CREATE VIEW w AS SELECT i FROM v;"
        "CREATE VIEW x AS SELECT i FROM a; DROP VIEW x; CREATE VIEW x AS SELECT j AS i FROM a;"
        "INSERT INTO b SELECT i FROM w; INSERT INTO c SELECT i FROM v; SELECT i FROM x",
        {"warehouse": str(tmp_path / "new")},
    )  # fmt: skip
    assert edges(found) == {
        ("a", "reads", "v"), ("v", "reads", "w"), ("a", "reads", "x"), ("w", "reads", "INSERT:1"),
        ("v", "reads", "INSERT:1"), ("x", "reads", "SELECT:1"), ("INSERT:1", "writes", "b"),
        ("INSERT:1", "writes", "c"),
    }  # fmt: skip
    assert {node.kind for node in found.nodes if node.name in "vwx"} == {"view"}
    assert "v · view" in displayed(found) and list(tmp_path.iterdir()) == []
    with pytest.raises(TableError, match="already exists"):
        graph("CREATE TABLE a (i INT); CREATE VIEW v AS SELECT i FROM a;"
              "CREATE VIEW v AS SELECT i FROM a")  # fmt: skip


def test_strategies_are_those_that_run_would_take(tmp_path: Path) -> None:
    dim = "CREATE TABLE d (id INT PRIMARY KEY NOT ENFORCED, n INT) WITH ('bucket' = '2')"
    rest = """; CREATE TABLE o (id INT, p AS PROCTIME()); CREATE TABLE t (id INT, n INT);
      INSERT INTO t SELECT {hint} o.id, d.n FROM o
      JOIN d FOR SYSTEM_TIME AS OF o.p AS d ON o.id = d.id"""
    hint = "/*+ LOOKUP('table'='d', 'strategy'='partial') */"
    execute(str(tmp_path), dim)
    bucket = "/*+ LOOKUP('table'='d', 'strategy'='bucket') */"
    for asked, words in (
        ("", "full cache by id"),
        (hint, "partial by primary key by id"),
        (bucket, "bucket shuffle by id"),
    ):
        there = graph(rest.format(hint=asked).removeprefix(";"), {"warehouse": str(tmp_path)})
        made = graph(dim + rest.format(hint=asked))
        for found in (there, made):
            (edge,) = (edge for edge in found.edges if edge.kind == "looks up")
            assert edge.label == f"{words} · INNER"


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize(
    ("buckets", "why"), [(1, "no fixed number of buckets above 1"), (4, "the order of rows")]
)
def test_a_strategy_that_run_refuses_is_no_drawing(
    tmp_path: Path, there: bool, buckets: int, why: str
) -> None:
    dim = f"CREATE TABLE d (id INT PRIMARY KEY NOT ENFORCED) WITH ('bucket' = '{buckets}');"
    rest = """CREATE TABLE o (id INT, p AS PROCTIME()); CREATE TABLE t (id INT PRIMARY KEY
      NOT ENFORCED, n INT) WITH ('bucket' = '1', 'merge-engine' = 'aggregation',
      'fields.n.aggregate-function' = 'last_value');
      INSERT INTO t SELECT /*+ LOOKUP('table'='d', 'strategy'='bucket') */ d.id, LAST_VALUE(o.id)
      FROM o JOIN d FOR SYSTEM_TIME AS OF o.p AS d ON o.id = d.id GROUP BY d.id"""
    if buckets == 1:
        rest = rest.replace("last_value", "sum").replace("LAST_VALUE", "SUM")
    if there:
        execute(str(tmp_path), dim)
    given = (rest, {"warehouse": str(tmp_path)}) if there else (dim + rest, None)
    with pytest.raises(OptionError, match=f"strategy 'bucket' cannot be used for .*{why}"):
        graph(*given)


def test_tables_of_a_warehouse_are_known(tmp_path: Path) -> None:
    options = {"warehouse": str(tmp_path)}
    execute(tmp_path.as_posix(), "CREATE TABLE there (i INT PRIMARY KEY NOT ENFORCED)")
    before = Warehouse(options).table("default.there").schema_id
    script = "CREATE TABLE new_ (i INT, j INT); ALTER TABLE there ADD j INT;"
    found = graph(f"{script} INSERT INTO new_ SELECT i, j FROM there", options)
    assert ("there", "reads", "INSERT:1") in edges(found)
    assert Warehouse(options).tables("default") == ["there"]
    assert Warehouse(options).table("default.there").schema_id == before


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("CREATE TABLE a (i INT);\nINSERT INTO a SELECT j FROM a", SqlError, "line 2, column 22"),
        ("CREATE TABLE a (i INT);\n INSERT INTO b SELECT i FROM a", TableError, "line 2, column 2"),
        ("CREATE TABLE a (i INT);\n CREATE TABLE a (i INT)", TableError, "line 2, column 2"),
        ("CREATE TABLE a (i INT) WITH ('bukcet' = '1')", Exception, "did you mean 'bucket'"),
        ("USE nowhere", TableError, "there is no database 'nowhere'"),
        (
            "CREATE TABLE a (i INT); CREATE TABLE b (i INT);\nINSERT OVERWRITE b SELECT i FROM a",
            UnsupportedSqlError,
            "line 2, column 1: INSERT OVERWRITE from a stream",
        ),
    ],
)
def test_mistakes_are_reported_with_their_place(
    text: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        graph(text)


def test_the_text_is_readable_on_80_columns() -> None:
    text = displayed(graph((ROOT / "examples/revenue.sql").read_text()))
    assert text.splitlines() == [
        "order_source · datagen · 5,000 rows",
        "└── INSERT line 57 → orders · append-only",
        "    └── INSERT line 59 → country_sales · aggregation · key country",
        "        └── ┄ lookup customers · full cache by id · INNER · 2 retries, 1 s apart",
        "INSERT VALUES line 54 → customers · key id",
    ]
    text = displayed(graph(WAREHOUSE))
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "hidden-word" not in text and "db.example" not in text


def test_circles_are_drawn_once() -> None:
    text = displayed(
        graph(
            "CREATE TABLE a (i INT); CREATE TABLE b (i INT);"
            "INSERT INTO b SELECT i FROM a; INSERT INTO a SELECT i FROM b"
        )
    )
    assert text.count("→ b") == 1 and "→ a · append-only (above)" in text
    assert displayed(graph("CREATE TABLE a (i INT)")) == "the script moves no rows\n"


def test_a_query_over_several_tables_is_drawn_below_each() -> None:
    tables = "CREATE TABLE a (i INT); CREATE TABLE b (i INT); CREATE TABLE t (i INT);"
    found = graph(f"{tables} INSERT INTO t SELECT i FROM a UNION ALL SELECT i FROM b")
    assert displayed(found).splitlines() == [
        "a · append-only", "└── INSERT line 1 → t · append-only",
        "b · append-only", "└── INSERT line 1 (above)",
    ]  # fmt: skip


def test_the_drawing_holds_every_node_and_edge() -> None:
    found = graph(WAREHOUSE)
    text = draw(found)
    tree = ElementTree.fromstring(text)
    space = {"s": "http://www.w3.org/2000/svg"}
    groups = {g.get("data-id") for g in tree.iterfind(".//s:g[@data-id]", space)}
    assert groups == {node.id for node in found.nodes}
    paths = [p.get("class", "") for p in tree.iterfind(".//s:path[@marker-end]", space)]
    assert len(paths) == len(found.edges)
    assert sum("lookup" in path for path in paths) == 1
    assert "prefers-color-scheme: dark" in text
    assert "hidden-word" not in text and "db.example" not in text


def test_names_cannot_break_the_drawing() -> None:
    found = graph("CREATE TABLE `a<b>&\"` (i INT); CREATE TABLE c (i INT);"
                  "INSERT INTO c SELECT i FROM `a<b>&\"`")  # fmt: skip
    words = {t.text for t in ElementTree.fromstring(draw(found)).iter() if t.text}
    assert 'a<b>&"' in words


@settings(max_examples=60)
@given(
    st.integers(1, 12).flatmap(
        lambda n: st.tuples(
            st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)))
        )
    )
)
def test_no_two_boxes_overlap(drawn: tuple[int, list[tuple[int, int]]]) -> None:
    count, pairs = drawn
    boxes = {str(i): Box(40.0 + 7 * i, 20.0 + 5 * (i % 3)) for i in range(count)}
    placed = place(boxes, [(str(a), str(b)) for a, b in pairs])
    for (a, (ax, ay)), (b, (bx, by)) in combinations(placed.centres.items(), 2):
        apart_x = abs(ax - bx) >= (boxes[a].width + boxes[b].width) / 2
        apart_y = abs(ay - by) >= (boxes[a].height + boxes[b].height) / 2 - 1e-6
        assert apart_x or apart_y
    for name, (x, y) in placed.centres.items():
        assert 0 <= x - boxes[name].width / 2 and x + boxes[name].width / 2 <= placed.width + 1e-6
        assert -1e-6 <= y - boxes[name].height / 2
        assert y + boxes[name].height / 2 <= placed.height + 1e-6


def test_the_command_prints_text_json_and_writes_svg(tmp_path: Path) -> None:
    script, svg = tmp_path / "s.sql", tmp_path / "s.svg"
    script.write_text("CREATE TABLE a (i INT); CREATE TABLE b (i INT); INSERT INTO b TABLE a;")
    app, runner = build(["graph"]), CliRunner()
    bad = runner.invoke(app, ["graph", str(script)])
    assert bad.exit_code == 1 and "line 1, column 63" in bad.stderr
    script.write_text(
        "CREATE TABLE a (i INT); CREATE TABLE b (i INT); INSERT INTO b SELECT i FROM a"
    )
    text = runner.invoke(app, ["graph", str(script), "--svg", str(svg)])
    assert text.exit_code == 0 and "→ b" in text.stdout
    ElementTree.fromstring(svg.read_text())
    out = json.loads(runner.invoke(app, ["graph", str(script), "--json"]).stdout)
    assert [edge["kind"] for edge in out["edges"]] == ["reads", "writes"]
    lost = runner.invoke(app, ["graph", str(script), "--svg", str(tmp_path / "no" / "s.svg")])
    assert lost.exit_code == 1 and "the folder does not exist" in lost.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.sql", "s.svg"]


def test_several_files_are_one_script(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("CREATE TABLE a (i INT); CREATE TABLE b (i INT);")
    (tmp_path / "b.sql").write_text("\nINSERT INTO b SELECT i FROM a;")
    files = [str(tmp_path / name) for name in ("a.sql", "b.sql")]
    app, runner = build(["graph"]), CliRunner()
    assert "INSERT b.sql line 2 → b" in runner.invoke(app, ["graph", *files]).stdout
    (tmp_path / "b.sql").write_text("\nINSERT INTO b SELECT j FROM a;")
    bad = runner.invoke(app, ["graph", *files])
    assert bad.exit_code == 1 and "b.sql" in bad.stderr and "line 2, column 22" in bad.stderr


def test_the_membership_warehouse_is_drawn() -> None:
    folder = ROOT / "examples/membership"
    text = "\n".join((folder / f"{name}.sql").read_text() for name in ("ods", "dwd", "dws", "app"))
    found = graph(text)
    layers = {node.layer for node in found.nodes if not isinstance(node, QueryNode)}
    assert {"ods", "dim", "dwd", "dws", "app"} <= layers
    ElementTree.fromstring(draw(found))
    lookups = {
        edge.start.rpartition(".")[2]: edge.label for edge in found.edges if edge.kind == "looks up"
    }
    assert lookups == {
        "dim_product": "full cache by id · INNER",
        "dim_agent": "partial by primary key by id · INNER",
        "dim_city": "bucket shuffle by id · INNER",
    }


def test_an_overwritten_partition_and_two_inserts_into_one_table() -> None:
    found = graph(
        "CREATE TABLE a (id INT, dt STRING) PARTITIONED BY (dt); CREATE TABLE b (id INT);"
        "CREATE TABLE c (id INT); INSERT INTO c SELECT id FROM b; INSERT INTO c SELECT id FROM a;"
        "SET 'table.exec.state.ttl' = '1 d'; SET 'execution.runtime-mode' = 'batch';"
        "INSERT OVERWRITE a PARTITION (dt = 'x') SELECT id FROM b;"
    )
    queries = [node for node in found.nodes if isinstance(node, QueryNode)]
    assert [query.kind for query in queries] == ["continuous", "continuous", "bounded"]
    assert "INSERT OVERWRITE" in displayed(found)
    with pytest.raises(SqlError, match="'id' is not a partition column"):
        graph(
            "CREATE TABLE a (id INT, dt STRING) PARTITIONED BY (dt);"
            "INSERT OVERWRITE a PARTITION (id = 1) VALUES ('x');"
        )
