"""Parsing and validation of path parameters, query parameters and the Accept header."""

from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request
from starlette.requests import HTTPConnection

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError
from streamhouse.options import table_of
from streamhouse.serve.formats.row_formats import RowFormat
from streamhouse.serve.http.access_control import Allowed
from streamhouse.serve.queries.output import MEDIA_TYPES
from streamhouse.serve.settings import MAX_FILTER_CHARACTERS
from streamhouse.serve.views.served_view import MAX_CHARACTERS, is_plain_text

FORMATS = tuple(member.value for member in RowFormat)
DECLARED = table_of(__package__, "parameters.toml")

ViewName = Annotated[str, Path(**DECLARED["view"], max_length=MAX_CHARACTERS)]
FormatName = Annotated[
    str | None, Query(**DECLARED["format"], json_schema_extra={"enum": list(FORMATS)})
]
Columns = Annotated[str | None, Query(**DECLARED["columns"])]
Filter = Annotated[str | None, Query(**DECLARED["filter"], max_length=MAX_FILTER_CHARACTERS)]
Order = Annotated[str | None, Query(**DECLARED["order"])]
Limit = Annotated[int | None, Query(**DECLARED["limit"])]
AsOf = Annotated[str | None, Query(**DECLARED["as_of"])]

_TYPES = {kind.partition(";")[0]: known for known, kind in MEDIA_TYPES.items()}
_TYPES["application/x-parquet"] = RowFormat.PARQUET


async def _check_parameters(connection: HTTPConnection, _: Allowed) -> None:
    """Raise `OptionError` for a query parameter that is unknown, given twice, or not plain text."""
    known = [field.alias for field in connection.scope["route"].dependant.query_params]
    seen = set()
    for key, value in connection.query_params.multi_items():
        if key not in known:
            hint = nearest(key, known) if known else "this path has none"
            raise OptionError(f"there is no parameter '{key[:40]}'; {hint}")
        if key in seen:
            raise OptionError(f"parameter '{key}' is given twice; give it once")
        if not is_plain_text(value):
            raise OptionError(f"parameter '{key}' contains a control character; remove it")
        seen.add(key)


KNOWN_PARAMETERS = [Depends(_check_parameters)]
"""Dependencies of a route that has only the query parameters of its function."""


def format_of(request: Request, parameter: str | None) -> RowFormat:
    """The response format: the parameter's, else the first known type in Accept, else JSON."""
    if parameter is not None:
        if parameter not in FORMATS:
            raise OptionError(
                f"parameter 'format': '{parameter}' is not one of {', '.join(FORMATS)}"
            )
        return RowFormat(parameter)
    for accepted in request.headers.get("accept", "").split(","):
        kind = accepted.partition(";")[0].strip().lower()
        if kind in _TYPES:
            return _TYPES[kind]
    return RowFormat.JSON


def names_of(parameter: str, text: str | None) -> tuple[str, ...] | None:
    """The names of a comma-separated list; None if the parameter is not given."""
    if text is None:
        return None
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise OptionError(
            f"parameter '{parameter}': a name is missing between two commas; write a,b"
        )
    return names


def order_of(text: str | None) -> tuple[tuple[str, bool], ...] | None:
    """The columns to sort by, each with whether it is descending; None if not given."""
    names = names_of("order", text)
    if names is None:
        return None
    return tuple((name.removeprefix("-").strip(), name.startswith("-")) for name in names)


def state(connection: HTTPConnection) -> Any:
    """The parts of the server; `serve.http.app.create_app` lists them."""
    return connection.app.state
