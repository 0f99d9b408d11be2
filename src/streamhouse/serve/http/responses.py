"""Responses: files that are deleted once sent, and JSON with an ETag."""

import contextlib
import hashlib
import os
from collections.abc import Mapping
from typing import BinaryIO

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from streamhouse.serve.formats.cells import compact

HEAD = "streamhouse.head"
"""Key in the ASGI scope of a GET that was a HEAD, so its body is not needed."""
_ONE_CHUNK_BYTES = 256 << 10
_CHUNK = 128 << 10
END: Message = {"type": "http.response.body", "body": b"", "more_body": False}


async def send_start(response: Response, scope: Scope, send: Send) -> bool:
    """Send the status and the headers; returns whether a body must follow, as not after HEAD."""
    start = {"status": response.status_code, "headers": response.raw_headers}
    await send({"type": "http.response.start", **start})
    if HEAD in scope:
        await send(END)
        return False
    return True


class TemporaryFileResponse(Response):
    """Sends a temporary file and deletes it."""

    def __init__(self, path: str, media_type: str, headers: Mapping[str, str]) -> None:
        self._path = path
        self._size = os.path.getsize(path)
        self.media_type = media_type
        self.status_code = 200
        self.background = None
        self.init_headers({**headers, "Content-Length": str(self._size)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with open(self._path, "rb") as file:
                # An open file can be read after unlink, so nothing is left if sending fails.
                os.unlink(self._path)
                if await send_start(self, scope, send):
                    await self._send(file, send)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)

    async def _send(self, file: BinaryIO, send: Send) -> None:
        remaining = self._size
        while True:
            if self._size <= _ONE_CHUNK_BYTES:
                chunk = file.read()
            else:
                chunk = await anyio.to_thread.run_sync(file.read, _CHUNK)
            remaining -= len(chunk)
            more = remaining > 0 and bool(chunk)
            await send({"type": "http.response.body", "body": chunk, "more_body": more})
            if not more:
                return


def json_response(request: Request, value: object) -> Response:
    """A JSON response with an ETag, or 304 if the client has it already (If-None-Match)."""
    body = compact(value).encode()
    tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Authorization"}
    if tag in request_etags(request):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


def request_etags(request: Request) -> tuple[str, ...]:
    """The ETags in If-None-Match, at most 50, in quotes and without `W/`."""
    header = request.headers.get("if-none-match", "")
    return tuple(tag.strip().removeprefix("W/") for tag in header.split(",")[:50] if tag.strip())
