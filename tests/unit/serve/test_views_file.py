"""The views file of `streamhouse serve --views`."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamhouse.errors import OptionError
from streamhouse.serve.views.views_file import read_views


def test_all_keys(tmp_path: Path) -> None:
    file = tmp_path / "views.yaml"
    file.write_text(
        """
views:
  - name: shop.country_sales
  - name: hall.board
    table: shop.country_sales$branch_b
    columns: [country, total]
    filter: "total > 0"
    title: Revenue per country
    description: Since the start
    chart: {type: lines, x: country, y: total}
"""
    )
    plain, board = read_views(str(file))
    assert (plain.name, plain.source, plain.columns) == (plain.name, "shop.country_sales", None)
    assert board.source == "shop.country_sales$branch_b" and board.columns == ("country", "total")
    assert board.filter == "total > 0" and board.title == "Revenue per country"
    assert board.chart == {"type": "lines", "x": "country", "y": ["total"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("views: shop.sales", "a list of"),
        ("view: []", "a list of"),
        ("views: [{name: sales}]", "write database.table"),
        ("views: [{table: a.b}]", "'name' is missing"),
        ("views: [{name: a.b, colums: [x]}]", "did you mean 'columns'?"),
        ("views: [{name: a.b, columns: x}]", "must be a list of names"),
        ("views: [{name: a.b, columns: [x, x]}]", "lists a name twice"),
        ("views: [{name: a.b}, {name: a.b}]", "is defined twice"),
        ("views: [{name: a.b, filter: 'x >'}]", "filter: line 1"),
        ("views: [{name: a.b, filter: 'x) OR (1 = 1'}]", "filter: line 1"),
        ("views: [{name: a.b, filter: 'x IN (SELECT 1)'}]", "cannot contain a query"),
        ("views: [{name: a.b, filter: 3}]", "must be a string"),
        ("views: [{name: a.b, chart: {type: pie}}]", "is not one of bars, lines, none"),
        ("views: [{name: a.b, chart: {colour: red}}]", "unknown option 'colour'"),
        ("views: [", "is not YAML"),
    ],
)
def test_invalid_files(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "views.yaml"
    file.write_text(text)
    with pytest.raises(OptionError) as error:
        read_views(str(file))
    assert said in str(error.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot be read"):
        read_views(str(tmp_path / "none.yaml"))
