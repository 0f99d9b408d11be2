"""The web page: static files of the package, sent with a Content-Security-Policy.

`GET /` is the page, `GET /page/<path>` one of its files, `GET /docs` that of the API. They hold no
data, so they need no token: the page asks for one when a request for data returns 401.

The page names all scripts that it will need, so that the browser requests them at once, and by
paths with their version (`/page/~<version>/…`), so that it requests them once.
"""

from __future__ import annotations

import gzip
import hashlib
import posixpath
import re
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
_INDEX, _MAIN = "index.html", "app.js"
_IMPORT = re.compile(r'^(?:import|export)\b[^"\n]*"(\.[^"]+)";$', re.MULTILINE)
_PATH = re.compile(r'"page/([^"]+)"')
_FOREVER = "public, max-age=31536000, immutable"
_SMALL_BYTES = 1024
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

    @classmethod
    def of(cls, kind: str, body: bytes) -> Asset:
        """A file with the content type `kind`."""
        etag = f'"{_digest(body)}"'
        return cls(body, {**_HEADERS, "Content-Type": kind, "ETag": etag})

    @property
    def etag(self) -> str:
        return self.headers["ETag"]

    @property
    def zipped(self) -> Asset:
        """The file as gzip."""
        changed = {"Content-Encoding": "gzip", "ETag": f'{self.etag[:-1]}-gzip"'}
        return Asset(gzip.compress(self.body, mtime=0), {**self.headers, **changed})


@cache
def assets() -> dict[str, Asset]:
    """All files of the page by their path in its folder; read once and cached."""
    found = {}
    for path, file in _files_below(files("streamhouse.serve").joinpath("page")):
        kind = _TYPES.get(PurePosixPath(path).suffix)
        if kind is not None:
            found[path] = Asset.of(kind, file.read_bytes())
    return found


@cache
def version() -> str:
    """Identifies the content of all files."""
    return _digest("".join(asset.etag for _, asset in sorted(assets().items())).encode())[:12]


@cache
def page() -> Asset:
    """The page, which names the scripts to load by paths with the version."""
    plain = assets()[_INDEX]
    text = _PATH.sub(rf'"page/~{version()}/\1"', plain.body.decode())
    loads = "".join(
        f'  <link rel="modulepreload" href="page/~{version()}/{name}">\n'
        for name in scripts()
        if name != _MAIN
    )
    text = text.replace("</head>", f"{loads}</head>")
    return Asset.of(plain.headers["Content-Type"], text.encode())


@cache
def scripts() -> tuple[str, ...]:
    """The scripts that the page loads, each after the one that first imports it."""
    found: dict[str, None] = {}
    left = [_MAIN]
    while left:
        name = left.pop(0)
        if name not in found:
            found[name] = None
            left += [
                posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
                for path in _IMPORT.findall(assets()[name].body.decode())
            ]
    return tuple(found)


@cache
def _zipped(path: str) -> Asset | None:
    """A file as gzip, None if that is not worth it; the empty path is the page."""
    asset = page() if not path else assets()[path]
    return asset.zipped if len(asset.body) >= _SMALL_BYTES else None


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:24]


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
    return _send("", request)


@router.api_route("/page/{path:path}", methods=["GET", "HEAD"])
def file(path: str, request: Request) -> Response:
    """One of its files, also by a path with a version."""
    if not path.startswith("~"):
        return _send(path, request)
    wanted, _, name = path.partition("/")
    # A page of another version gets the current file, uncached.
    return _send(name or "~", request, immutable=wanted == f"~{version()}")


@router.get("/docs")
def docs(request: Request) -> Response:
    """The API documentation page, which is made from /openapi.json."""
    return _send("openapi/api.html", request)


@router.get("/docs/{name}")
def docs_part(name: str, request: Request) -> Response:
    """The static files of /docs."""
    return _send(f"openapi/{name}", request)


def _send(path: str, request: Request, immutable: bool = False) -> Response:
    asset = assets().get(path) if path else page()
    if asset is None:
        raise HTTPException(404, f"the page has no file '{path[:80]}'; the page itself is at /")
    zipped = _zipped(path) if _takes_gzip(request) else None
    if zipped is not None:
        asset = zipped
    headers = {**asset.headers, "Vary": "Accept-Encoding"}
    if immutable:
        headers["Cache-Control"] = _FOREVER
    client_etags = request.headers.get("if-none-match", "")
    if asset.etag in (tag.strip().removeprefix("W/") for tag in client_etags.split(",")):
        for key in ("Content-Type", "Content-Encoding"):
            headers.pop(key, None)
        return Response(status_code=304, headers=headers)
    return Response(asset.body, headers=headers)


def _takes_gzip(request: Request) -> bool:
    for part in request.headers.get("accept-encoding", "").split(","):
        coding, _, quality = part.replace(" ", "").lower().partition(";q=")
        if coding in ("gzip", "*"):
            return quality not in ("0", "0.0", "0.00", "0.000")
    return False
