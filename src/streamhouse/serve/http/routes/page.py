"""The web page: static files of the package, sent with a Content-Security-Policy.

`GET /` is the page, `GET /page/<path>` one of its files. They hold no data, so they need no token:
the page asks for one when a request for data returns 401.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

from fastapi import APIRouter, HTTPException, Request, Response

POLICY = "; ".join(
    [
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
)
"""Forbids other hosts and inline scripts and styles, so text from a table cannot become code."""

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Browsers revalidate each time by ETag, so they load the page of a new server version at once.
    "Cache-Control": "no-cache",
}

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Asset:
    """One file of the page, with its response headers."""

    body: bytes
    headers: Mapping[str, str]

    @property
    def etag(self) -> str:
        return self.headers["ETag"]


@cache
def assets() -> dict[str, Asset]:
    """All files of the page by their path in its folder; read once and cached."""
    found = {}
    for path, file in _files_below(files("streamhouse.serve").joinpath("page")):
        kind = _TYPES.get(PurePosixPath(path).suffix)
        if kind is not None:
            body = file.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
            found[path] = Asset(body, {**_HEADERS, "Content-Type": kind, "ETag": etag})
    return found


def _files_below(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    """The files of a folder and its subfolders, with their paths in it."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files_below(entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry


@router.api_route("/", methods=["GET", "HEAD"])
def index(request: Request) -> Response:
    """The page."""
    return _send("index.html", request)


@router.api_route("/page/{path:path}", methods=["GET", "HEAD"])
def file(path: str, request: Request) -> Response:
    """One of its files."""
    return _send(path, request)


def _send(path: str, request: Request) -> Response:
    asset = assets().get(path)
    if asset is None:
        raise HTTPException(404, f"the page has no file '{path}'; the page itself is at /")
    client_etags = request.headers.get("if-none-match", "")
    if asset.etag in (tag.strip().removeprefix("W/") for tag in client_etags.split(",")):
        headers = {key: value for key, value in asset.headers.items() if key != "Content-Type"}
        return Response(status_code=304, headers=headers)
    return Response(asset.body, headers=dict(asset.headers))
