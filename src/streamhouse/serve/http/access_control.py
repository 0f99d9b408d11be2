"""Access control of requests: the Host and Origin headers, bearer tokens, and permitted acts."""

import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from starlette.requests import HTTPConnection

from streamhouse.serve.errors import Problem
from streamhouse.serve.settings import ANY_ORIGIN, ServerSettings, is_loopback
from streamhouse.serve.tokens import EVERYTHING, READ, RUN, SQL, Scope, find_scope

SUBPROTOCOL = "streamhouse"
_BEARER = "bearer."
_SAFE = ("GET", "HEAD", "OPTIONS")

_scheme = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="Only where the server was started with --token-file or STREAMHOUSE_TOKEN.",
)


def check_origin(settings: ServerSettings, method: str, headers: Mapping[str, str]) -> None:
    """Raise `Problem` for a request that a page of another site may have made.

    `method` is `WEBSOCKET` for a WebSocket. Without tokens, tables are protected only by the
    loopback address. A page of another site, open in a browser on this machine, must not get around
    that: neither by DNS rebinding (checked by Host) nor by cross-site requests (checked by Origin
    and Sec-Fetch-Site).
    """
    host = headers.get("host")
    if not settings.tokens and host is not None and not is_loopback(_host_name(host)):
        raise Problem(
            "forbidden",
            f"this server accepts requests to localhost or 127.0.0.1, not to '{host[:80]}'; "
            "start it with --token-file to serve other names",
        )
    origin, is_cross_site = headers.get("origin"), headers.get("sec-fetch-site") == "cross-site"
    if origin is not None and not _is_allowed_origin(settings, origin, host):
        if method not in _SAFE or is_cross_site:
            raise Problem(
                "forbidden",
                f"pages of '{origin[:80]}' may not send requests to this server; start it with "
                f"--allow-origin {origin[:80]}",
            )
    if origin is None and is_cross_site and headers.get("sec-fetch-mode") != "navigate":
        # The page embeds the URL, such as an image or a script.
        raise Problem("forbidden", "pages of other sites may not send requests to this server")


def check_body(request: Request) -> None:
    """Require a JSON body, which pages of other sites cannot send without a CORS preflight."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem("unsupported", "send the body as JSON, with Content-Type: application/json")


async def allowed(request: HTTPConnection, _: Annotated[object, Depends(_scheme)]) -> Scope:
    """Dependency: the permissions of a client; `Problem` without a known token if one is needed."""
    settings: ServerSettings = request.app.state.settings
    if not settings.tokens:
        return EVERYTHING
    scope = token_scope(settings, request)
    if scope is None:
        message = "this server requires a token; send it as Authorization: Bearer <token>"
        if _sent_token(request) is not None:
            message = "the token is unknown; ask the administrator of the server for a valid one"
        raise Problem("unauthorized", message, {"WWW-Authenticate": "Bearer"})
    request.scope["streamhouse.token"] = scope.name
    return scope


def token_scope(settings: ServerSettings, connection: HTTPConnection) -> Scope | None:
    """The permissions of a request's token; None if the token is missing or unknown."""
    token = _sent_token(connection)
    return None if token is None else find_scope(settings.tokens, token)


def may(act: str) -> Callable[..., Awaitable[Scope]]:
    """Make a dependency that returns the client's scope; `Problem` if it may not do the act."""

    async def dependency(request: HTTPConnection, scope: Allowed) -> Scope:
        if not scope.may(act):
            raise Problem(
                "forbidden", f"this token does not allow '{act}'; it allows {sorted(scope.acts)}"
            )
        settings: ServerSettings = request.app.state.settings
        if act == RUN and not settings.allow_run:
            raise Problem(
                "forbidden",
                "this server does not run pipelines; start it with --allow-run if its clients may "
                "run programs on its machine",
            )
        return scope

    return dependency


Allowed = Annotated[Scope, Depends(allowed)]
MayRead = Annotated[Scope, Depends(may(READ))]
MayQuery = Annotated[Scope, Depends(may(SQL))]


def subprotocol(connection: HTTPConnection) -> str | None:
    """The subprotocol to accept a WebSocket with; None if the client did not offer ours."""
    offered: list[str] = connection.scope.get("subprotocols", [])
    return SUBPROTOCOL if SUBPROTOCOL in offered else None


def _sent_token(connection: HTTPConnection) -> str | None:
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    for offered in connection.scope.get("subprotocols", []):
        if offered.startswith(_BEARER):
            return _decoded(offered.removeprefix(_BEARER))
    return None


def _decoded(text: str) -> str:
    padded = text + "=" * (-len(text) % 4)
    try:
        return base64.urlsafe_b64decode(padded).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return ""


def _host_name(host: str) -> str:
    """The host in `name:port` or `[::1]:port`."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].lower()


def _is_allowed_origin(settings: ServerSettings, origin: str, host: str | None) -> bool:
    allowed_origins = settings.origin_set
    if ANY_ORIGIN in allowed_origins or origin in allowed_origins:
        return True
    own_host = "" if host is None else host.lower()
    return bool(own_host) and origin.lower() in (f"http://{own_host}", f"https://{own_host}")
