"""`POST /sql`: one SELECT over the served views."""

import json

from fastapi import APIRouter, Request
from starlette.responses import Response

from streamhouse.errors import OptionError, SqlError
from streamhouse.options import check_known
from streamhouse.serve.admission.fair_queue import client_of
from streamhouse.serve.errors import Problem
from streamhouse.serve.formats.row_formats import RowFormat
from streamhouse.serve.http.access_control import MayQuery
from streamhouse.serve.http.models import SqlResponse, content_in_all_formats, error_responses
from streamhouse.serve.http.responses import TemporaryFileResponse
from streamhouse.serve.http.routes.parameters import (
    DECLARED,
    FORMATS,
    KNOWN_PARAMETERS,
    FormatName,
    format_of,
    state,
)
from streamhouse.serve.queries.output import MEDIA_TYPES, OutputTarget, SelectRequest
from streamhouse.serve.settings import MAX_RESPONSE_BYTES
from streamhouse.serve.views.served_view import is_plain_text

router = APIRouter(tags=["sql"], dependencies=KNOWN_PARAMETERS)

_JSON = "application/json"
_TEXTS = ("text/plain", "application/sql")
_BODY = DECLARED["sql"]
_MEMBERS = _BODY["content"][_JSON]["schema"]["properties"]
_MEMBERS["format"] = {"type": "string", "enum": list(FORMATS)}
_MAX_CHARACTERS: int = _MEMBERS["sql"]["maxLength"]


@router.post(
    "/sql",
    summary="One SELECT",
    response_model=SqlResponse,
    responses={
        200: {
            "description": "The result. Rows beyond the server's --query-rows are left out; then "
            "`truncated` (or the header `X-Streamhouse-Truncated`) is true.",
            "content": content_in_all_formats("SqlResponse"),
        },
        **error_responses("bad_request", "not_found", "expired", "too_large", "unsupported"),
    },
    openapi_extra={"requestBody": _BODY},
)
async def sql(request: Request, scope: MayQuery, format_name: FormatName = None) -> Response:
    """Run one SELECT (or WITH, or VALUES) in the Flink dialect over the served views.

    Each view is read at its newest snapshot, unless the query says `FOR SYSTEM_TIME AS OF`.
    """
    parts = state(request)
    settings = parts.settings
    text, form = await _parse_body(request, format_name)
    target = OutputTarget(
        parts.queries.path(), form, settings.query_rows, MAX_RESPONSE_BYTES, cut=True
    )
    select = SelectRequest(text, target, settings.query_limits, settings.views, scope)
    result = await parts.queries.run(client_of(request), select)
    headers = {"X-Streamhouse-Truncated": "true" if result.truncated else "false"}
    return TemporaryFileResponse(target.path, MEDIA_TYPES[form], headers)


async def _parse_body(request: Request, format_name: str | None) -> tuple[str, RowFormat]:
    """The text of the query and the format of the response, from the body and the parameters."""
    body = await request.body()
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise OptionError("the body is not text in UTF-8") from None
    if kind == _JSON or kind.endswith("+json"):
        text, format_name = _parse_json(text, format_name)
    elif kind not in _TEXTS:
        raise Problem(
            "unsupported",
            'send the query as {"sql": "SELECT …"} with Content-Type: application/json, or as '
            "plain text with application/sql or text/plain",
        )
    if len(text) > _MAX_CHARACTERS:
        raise Problem(
            "too_large", f"the query is longer than {_MAX_CHARACTERS:,} characters; shorten it"
        )
    if not is_plain_text(text):
        raise SqlError("the query contains a control character; remove it")
    return text, format_of(request, format_name)


def _parse_json(text: str, format_name: str | None) -> tuple[str, str | None]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        raise OptionError('the body is not JSON; send {"sql": "SELECT …"}') from None
    if not isinstance(record, dict) or not isinstance(record.get("sql"), str):
        raise OptionError('the body has no string "sql"; send {"sql": "SELECT …"}')
    check_known(record, ("sql", "format"), "the body")
    form = record.get("format", format_name)
    if form is not None and not isinstance(form, str):
        raise OptionError(f'"format" must be one of {", ".join(FORMATS)}')
    return record["sql"], form
