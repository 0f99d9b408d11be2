"""Error responses: an HTTP status and the body `{"error": {"code": …, "message": …}}`."""

import re
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response

from streamhouse import errors
from streamhouse.options import hide_secrets, table_of
from streamhouse.serve.access_log import LOGGER
from streamhouse.serve.formats.cells import printable

CODES: Mapping[str, tuple[int, str]] = table_of(__package__, "error_codes.toml")
"""The status of each code, and when it is sent."""
_CODES = {status: code for code, (status, _) in CODES.items()} | {408: "bad_request"}

# The first match wins, so subclasses stand before their base classes.
_CLASSES: tuple[tuple[type[Exception], str], ...] = (
    (errors.OptionError, "bad_request"),
    (errors.TooLargeError, "too_large"),
    (errors.BusyError, "busy"),
    (errors.NoSpaceError, "busy"),
    (errors.SqlError, "invalid"),
    (errors.QueryError, "invalid"),
    (errors.LimitError, "too_large"),
    (errors.DataLossError, "expired"),
    (errors.TableError, "not_found"),
    (errors.ConnectError, "busy"),
    (errors.SchemaChangeError, "conflict"),
    (errors.CommitConflictError, "conflict"),
    (errors.PipelineError, "conflict"),
    (errors.StreamhouseError, "failed"),
)


class Problem(Exception):
    """An error response.

    `headers` are added to the response, `more` to the JSON object under `error`.
    """

    def __init__(
        self, code: str, message: str, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.headers = headers
        self.more = more

    @property
    def status(self) -> int:
        return CODES[self.code][0]

    @property
    def body(self) -> dict[str, Any]:
        """The JSON object of the response; secrets in the message are hidden."""
        message = hide_secrets(self.message)
        return {"error": {"code": self.code, "message": message, **self.more}}

    def response(self) -> Response:
        """The HTTP response; it also rejects a WebSocket handshake."""
        return JSONResponse(self.body, self.status, self.headers)


def problem_of(error: Exception, warehouse: str = "") -> Problem:
    """Convert any exception to an error response; the message hides the path of `warehouse`."""
    if isinstance(error, Problem):
        return error
    code = next((code for kind, code in _CLASSES if isinstance(error, kind)), None)
    if code is None:
        return Problem("failed", "internal server error; the server's log has the details")
    text = hide_path(str(error), warehouse)
    more: dict[str, Any] = {}
    if isinstance(error, errors.SqlError) and error.line:
        more = {"line": error.line, "column": error.column}
    return Problem(code, text, **more)


def install(app: FastAPI, warehouse: str) -> None:
    """Register handlers that turn exceptions into error responses.

    `serve.http.middleware` handles all other exceptions.
    """

    async def respond(connection: HTTPConnection, error: Exception) -> Response:
        match error:
            case HTTPException():
                return _status_problem(connection, error).response()
            case RequestValidationError() | WebSocketRequestValidationError():
                return Problem("invalid", _validation_message(list(error.errors()))).response()
        problem = problem_of(error, warehouse)
        if problem.code == "failed":
            path = printable(connection.scope["path"])
            LOGGER.error("%s failed: %s", path, hide_secrets(str(error)))
        return problem.response()

    invalid = (RequestValidationError, WebSocketRequestValidationError)
    for kind in (Problem, errors.StreamhouseError, HTTPException, *invalid):
        app.add_exception_handler(kind, respond)


def _status_problem(connection: HTTPConnection, error: HTTPException) -> Problem:
    code = _CODES.get(error.status_code, "bad_request")
    message, headers = str(error.detail), error.headers
    if code == "not_found" and message == "Not Found":
        message = f"path {connection.url.path[:200]} does not exist; GET /docs lists the paths"
    elif code == "not_allowed":
        allowed = (headers or {}).get("Allow", "another method")
        if "GET" in allowed and "HEAD" not in allowed:
            allowed += ", HEAD"
            headers = {**(headers or {}), "Allow": allowed}
        message = f"this path allows only {allowed}"
    elif code == "too_large":
        message = "the request body is too long; send a shorter one"
    return Problem(code, message, headers)


def _validation_message(problems: list[Any]) -> str:
    """One line with the first three validation errors."""
    texts = []
    for problem in problems[:3]:
        location = [str(part) for part in problem.get("loc", ())]
        name = location[-1] if location else "the request"
        kind = "parameter" if location[:1] in (["query"], ["path"], ["header"]) else "body"
        texts.append(f"{kind} '{name}': {problem.get('msg', 'not valid')}")
    return "; ".join(texts)


NAME = "the warehouse"


def hide_path(text: str, warehouse: str) -> str:
    """The message with the warehouse's path replaced by `NAME`, also without the leading `/`."""
    bare = re.escape(warehouse.strip("/"))
    if not bare:
        return text
    return re.sub(rf"(?<![\w/.-]){bare}(?=/)", NAME, text.replace(warehouse, NAME))
