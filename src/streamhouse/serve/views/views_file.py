"""The views file, which lists the served views: `streamhouse serve --views FILE.yaml`.

views:
  - name: shop.country_sales      # in URLs: database.table
    table: shop.country_sales     # default: the name; may be a branch, db.t$branch_b
    columns: [country, total]     # default: all
    filter: "total > 0"           # a condition in the Flink dialect; default: none
    title: Revenue per country
    description: What each country has bought since the start
    chart: {type: bars, x: country, y: [total]}
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamhouse.errors import OptionError, SqlError
from streamhouse.options import check_known
from streamhouse.serve.views.served_view import ServedView, check_name
from streamhouse.sql.parser.query_parser import parse_condition

_KEYS = ("name", "table", "columns", "filter", "title", "description", "chart")
_CHART_KEYS = ("type", "x", "y", "title")
_CHARTS = ("bars", "lines", "none")


def read_views(path: str) -> tuple[ServedView, ...]:
    """Read the views of a file, in its order.

    Raises `OptionError` for a file that cannot be read, an unknown key (naming the nearest), a
    duplicate name, or a filter that is not one condition. Does not check that the tables exist;
    that happens when a view is requested.
    """
    import yaml

    where = f"option '--views': {path}"
    try:
        record = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"{where} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise OptionError(f"{where} is not text in UTF-8") from None
    except yaml.YAMLError as error:
        raise OptionError(f"{where} is not YAML: {' '.join(str(error).split())}") from None
    views = record.get("views") if isinstance(record, dict) else None
    if not isinstance(views, list) or not all(isinstance(entry, dict) for entry in views):
        raise OptionError(
            f"{where}: the file must be `views:` with a list of `- name: database.table`"
        )
    check_known(map(str, record), ("views",), where)
    found = tuple(_view(entry, f"{where}, view {number}") for number, entry in enumerate(views, 1))
    names = [view.name for view in found]
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise OptionError(f"{where}: view '{duplicate}' is defined twice; rename one of them")
    return found


def _view(record: Mapping[Any, Any], where: str) -> ServedView:
    check_known(map(str, record), _KEYS, where)
    name = _text(record, "name", where)
    if name is None:
        raise OptionError(f"{where}: 'name' is missing; write it as database.table")
    check_name(name, where)
    where = f"{where} ({name})"
    source = _text(record, "table", where) or name
    check_name(source, where)
    condition = _text(record, "filter", where)
    if condition is not None:
        _check_filter(condition, where)
    return ServedView(
        name,
        source,
        _texts(record, "columns", where),
        condition,
        _text(record, "title", where),
        _text(record, "description", where),
        _chart(record, where),
    )


def _check_filter(condition: str, where: str) -> None:
    try:
        parse_condition(condition)
    except SqlError as error:
        raise OptionError(f"{where}, filter: {error}") from None


def _text(record: Mapping[Any, Any], key: str, where: str) -> str | None:
    value = record.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise OptionError(f"{where}: '{key}' must be a string; put it in quotes")
    return value.strip()


def _texts(record: Mapping[Any, Any], key: str, where: str) -> tuple[str, ...] | None:
    value = record.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
        raise OptionError(f"{where}: '{key}' must be a list of names, such as [country, total]")
    if len(set(value)) < len(value):
        raise OptionError(f"{where}: '{key}' lists a name twice")
    return tuple(value)


def _chart(record: Mapping[Any, Any], where: str) -> Mapping[str, Any] | None:
    chart = record.get("chart")
    if chart is None:
        return None
    if not isinstance(chart, dict):
        raise OptionError(
            f"{where}: 'chart' must be a mapping such as {{type: bars, x: country, y: [total]}}"
        )
    check_known(map(str, chart), _CHART_KEYS, f"{where}, chart")
    kind = chart.get("type", _CHARTS[0])
    if kind not in _CHARTS:
        raise OptionError(f"{where}, chart: type '{kind}' is not one of {', '.join(_CHARTS)}")
    settings: dict[str, Any] = {"type": kind}
    x, title = _text(chart, "x", where), _text(chart, "title", where)
    y = chart.get("y")
    measures = (y,) if isinstance(y, str) else _texts(chart, "y", where)
    settings |= {} if x is None else {"x": x}
    settings |= {} if measures is None else {"y": list(measures)}
    return settings | ({} if title is None else {"title": title})
