"""`audit` finds each row by which a materialized view differs from its query."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.views.view_session import ViewSession, bag, change

from streamhouse.errors import TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.audit.audit import audit
from streamhouse.runtime.audit.repair import repair
from streamhouse.runtime.state.checkpoint import VIEWS, Checkpoint, checkpoints_of
from streamhouse.runtime.statements.insert_plan import plan_insert
from streamhouse.runtime.statements.result_view import KeptResult, kept_spec
from streamhouse.runtime.views.refresh import refresh
from streamhouse.source import ROW_KIND
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Insert

_VIEWS = {
    "keyed": "SELECT o.id, o.rate, c.name FROM orders o LEFT JOIN customers c "
    "ON o.customer_id = c.id",
    "hidden": "SELECT product, SUM(rate) AS s, COUNT(*) AS n FROM orders GROUP BY product",
    "equal_rows": "SELECT product FROM orders WHERE price > 0",
    "nested": "SELECT id, tags, at_ FROM orders",
}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> ViewSession:
    session = ViewSession(tmp_path_factory.mktemp("views") / "warehouse")
    for name, query in _VIEWS.items():
        session.view(name, query)
    for number in range(3):
        session.execute(change(random.Random(number), number))
    for name in _VIEWS:
        session.refresh(name)
    return session


@pytest.mark.parametrize("name", _VIEWS)
@pytest.mark.parametrize("damage", ["change", "remove", "add"])
def test_an_audit_finds_a_damaged_row(session: ViewSession, name: str, damage: str) -> None:
    assert audit(session.warehouse, f"shop.{name}").equal
    _damage(session, name, damage)
    found = audit(session.warehouse, f"shop.{name}")
    rows, query_rows = (bag(session.exact_rows(q)) for q in (f"SELECT * FROM {name}", _VIEWS[name]))
    reported: tuple[Counter[Any], Counter[Any]] = (
        bag([list(d.actual.values()) for d in found.differences if d.actual]),
        bag([list(d.expected.values()) for d in found.differences if d.expected]),
    )
    assert reported == (rows - query_rows, query_rows - rows)
    assert not found.equal
    repaired = repair(session.warehouse, f"shop.{name}")
    assert repaired.inserted + repaired.updated + repaired.deleted == 1
    assert audit(session.warehouse, f"shop.{name}").equal


def test_an_audit_reports_what_a_view_has_not_read(session: ViewSession) -> None:
    session.execute("INSERT INTO orders (id, product, price) VALUES (99, 'new', 1)")
    found = audit(session.warehouse, "shop.equal_rows")
    assert [d.expected for d in found.differences] == [{"product": "new"}]
    assert not found.complete
    session.refresh("equal_rows")
    assert audit(session.warehouse, "shop.equal_rows").equal
    session.execute("DELETE FROM orders WHERE id = 99")
    for name in _VIEWS:
        session.refresh(name)


def test_an_audit_breaks_ties_as_the_refresh_did(session: ViewSession) -> None:
    ties = {
        "first_of_ties": "SELECT product, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY "
        "product ORDER BY amount) AS rn FROM orders) WHERE rn = 1",
        "some_rows": "SELECT o.id, c.name FROM orders o JOIN customers c ON o.amount > c.id "
        "ORDER BY c.name LIMIT 4",
        "lists": "SELECT amount, LISTAGG(product) AS l, FIRST_VALUE(id) AS f FROM orders "
        "GROUP BY amount",
    }
    for name, query in ties.items():
        session.view(name, query)
    for number in range(3, 6):
        session.execute(change(random.Random(number), number))
        for name in ties:
            session.refresh(name)
            assert audit(session.warehouse, f"shop.{name}").equal, name


def _damage(session: ViewSession, name: str, damage: str) -> None:
    """Write one row of a view's table, as no refresh would."""
    table = Warehouse(session.warehouse).table(f"shop.{name}")
    row = next(batch for batch in table.read() if batch.num_rows).slice(0, 1).to_pylist()[0]
    key = table.primary_key[0]
    if damage == "add":
        row[key] = "other" if isinstance(row[key], str) else -1
    elif damage == "change":
        column = next(n for n in reversed(row) if table.arrow_schema.field(n).nullable)
        kind = table.arrow_schema.field(column).type
        row[column] = None if row[column] is not None else pa.scalar(1).cast(kind).as_py()
    user = str(uuid.uuid4())
    writer = TableWriter(session.warehouse, table.identifier, user)
    schema = table.read_schema(row_kind=True)
    row[ROW_KIND] = {"change": "+U", "remove": "-D", "add": "+I"}[damage]
    writer.write(pa.RecordBatch.from_pylist([row], schema=schema))
    messages = writer.prepare(0)
    writer.close()
    TableCommitter(session.warehouse, table.identifier, user).commit(0, messages)


def test_an_audit_proves_a_table_that_an_insert_keeps(session: ViewSession) -> None:
    """Its SELECT is in the checkpoint, since the table is an ordinary one."""
    session.run(
        "CREATE TABLE kept (product STRING, note STRING, total DECIMAL(20, 2), "
        "PRIMARY KEY (product) NOT ENFORCED) WITH ('changelog-producer' = 'input', 'bucket' = '1')"
    )
    (insert,) = parse_script(
        "INSERT INTO kept (total, product) SELECT SUM(price), COALESCE(product, '-') FROM orders o "
        "LEFT JOIN customers c ON o.customer_id = c.id GROUP BY COALESCE(product, '-')"
    )
    assert isinstance(insert, Insert)
    target = session.session.table(("kept",))
    planned = plan_insert(session.session, insert, target)
    assert isinstance(planned, KeptResult)
    spec = kept_spec(session.session, insert, target, planned)
    refresh(spec)
    with pytest.raises(TableError, match="has no lineage"):
        audit(session.warehouse, "shop.kept")
    checkpoint = Checkpoint(checkpoints_of(session.warehouse["warehouse"]), VIEWS, "shop.kept")
    checkpoint.query_id()
    checkpoint.remember({"definition": spec.definition})
    assert audit(session.warehouse, "shop.kept").equal
    _damage(session, "kept", "change")
    assert len(audit(session.warehouse, "shop.kept").differences) == 1
    assert repair(session.warehouse, "shop.kept").updated == 1
    assert audit(session.warehouse, "shop.kept").equal
