"""The error of a refresh names the operator that fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.views.view_session import ViewSession

from streamhouse.errors import QueryError


def test_an_error_names_its_operator(tmp_path: Path) -> None:
    session = ViewSession(tmp_path / "warehouse")
    session.view(
        "v",
        "SELECT country, SUM(n) AS n FROM (SELECT country, CAST(name AS INT) AS n FROM customers) "
        "GROUP BY country",
    )
    session.execute("INSERT INTO customers VALUES (1, '7', 'DE', TRUE)")
    assert session.refresh("v") == 1
    session.execute("INSERT INTO customers VALUES (2, 'x', 'DE', TRUE)")
    with pytest.raises(QueryError, match=r"operator: project country, .*name.* AS n\)"):
        session.refresh("v")
