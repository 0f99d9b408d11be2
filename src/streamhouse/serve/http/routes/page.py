"""The web page: static files of the package, sent with a Content-Security-Policy.

`GET /` is the page, `GET /page/<path>` one of its files, `GET /docs` that of the API. They hold no
data, so they need no token: the page asks for one when a request for data returns 401.

The page names all scripts that it will need, so that the browser requests them at once, and by
paths with their version (`/page/~<version>/…`), so that it requests them once.
"""

import gzip
import hashlib
import posixpath
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request, Response

from streamhouse.serve.http.responses import request_etags

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
_FOLDER = Path(__file__).parents[2] / "page"
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
    """One file of the page: its content type, and its body."""

    kind: str
    body: bytes

    @cached_property
    def etag(self) -> str:
        return f'"{_digest(self.body)}"'

    @cached_property
    def zipped(self) -> bytes | None:
        """The body as gzip; None if that is not worth it."""
        return gzip.compress(self.body, mtime=0) if len(self.body) >= _SMALL_BYTES else None


@cache
def assets() -> dict[str, Asset]:
    """All files of the page by their path in its folder; read once and cached."""
    return {
        path.relative_to(_FOLDER).as_posix(): Asset(_TYPES[path.suffix], path.read_bytes())
        for path in _FOLDER.rglob("*")
        if path.suffix in _TYPES
    }


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
    return Asset(plain.kind, text.replace("</head>", f"{loads}</head>").encode())


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


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:24]


@router.api_route("/", methods=["GET", "HEAD"])
def index(request: Request) -> Response:
    """The page."""
    return _send(page(), request)


@router.api_route("/page/{path:path}", methods=["GET", "HEAD"])
def file(path: str, request: Request) -> Response:
    """One of its files, also by a path with a version."""
    if path.startswith("~"):
        # A page of another version gets the current file, uncached.
        wanted, _, path = path[1:].partition("/")
        return _send(assets().get(path), request, immutable=wanted == version())
    return _send(assets().get(path), request)


@router.get("/docs")
def docs(request: Request) -> Response:
    """The API documentation page, which is made from /openapi.json."""
    return _send(assets()["openapi/api.html"], request)


@router.get("/docs/{name}")
def docs_part(name: str, request: Request) -> Response:
    """The static files of /docs."""
    return _send(assets().get(f"openapi/{name}"), request)


def _send(asset: Asset | None, request: Request, immutable: bool = False) -> Response:
    if asset is None:
        path = request.url.path.rpartition("/page/")[2]
        raise HTTPException(404, f"the page has no file '{path[:80]}'; the page itself is at /")
    headers = {**_HEADERS, "ETag": asset.etag, "Vary": "Accept-Encoding"}
    if immutable:
        headers["Cache-Control"] = _FOREVER
    zipped = asset.zipped if _takes_gzip(request) else None
    if zipped is not None:
        headers["ETag"] = f'{asset.etag[:-1]}-gzip"'
    if headers["ETag"] in request_etags(request):
        return Response(status_code=304, headers=headers)
    headers["Content-Type"] = asset.kind
    if zipped is not None:
        headers["Content-Encoding"] = "gzip"
    return Response(zipped or asset.body, headers=headers)


def _takes_gzip(request: Request) -> bool:
    for part in request.headers.get("accept-encoding", "").split(","):
        coding, _, quality = part.replace(" ", "").lower().partition(";q=")
        if coding in ("gzip", "*"):
            return quality not in ("0", "0.0", "0.00", "0.000")
    return False
