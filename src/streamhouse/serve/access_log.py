"""Access log: one line per request on standard error, as text or JSON.

It never contains query strings or tokens. A background thread writes the lines; if the terminal or
pipe blocks, the server drops lines instead of waiting.
"""

import contextlib
import datetime
import json
import logging
import logging.handlers
import queue
import sys
from collections.abc import Iterator
from concurrent.futures import wait
from typing import Any

from streamhouse.background import in_background
from streamhouse.options import hide_secrets

LOGGER = logging.getLogger("streamhouse.serve")
_LINES = 10_000
_END_S = 0.5
_NEVER = logging.CRITICAL + 1
_FIELDS = "request"


class _Text(logging.Formatter):
    """`12:00:00 127.0.0.1 GET /views 200 1.2 ms 345 B`."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        fields = getattr(record, _FIELDS, None)
        if fields is None:
            return f"{time} {record.levelname.lower()}: {hide_secrets(record.getMessage())}"
        client = fields["client"] + (f" ({fields['token']})" if fields["token"] else "")
        request = f"{fields['method']} {fields['path']} {fields['status']}"
        return f"{time} {client} {request} {fields['ms']:.1f} ms {fields['bytes']} B"


class _Json(logging.Formatter):
    """One JSON object: time, level, and the request's fields or the message."""

    def format(self, record: logging.LogRecord) -> str:
        timestamp = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        head = {"time": timestamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
        head["level"] = record.levelname.lower()
        fields: dict[str, Any] | None = getattr(record, _FIELDS, None)
        if fields is None:
            fields = {"message": hide_secrets(record.getMessage())}
        return json.dumps(head | fields, ensure_ascii=False)


class _Queue(logging.handlers.QueueHandler):
    """Enqueues log records without blocking; drops them when the queue is full."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record

    def handleError(self, record: logging.LogRecord) -> None:
        return


@contextlib.contextmanager
def logging_to_stderr(form: str) -> Iterator[None]:
    """Write the server's log to standard error inside the `with`; `form`: text, json or off."""
    # uvicorn's own messages repeat ours, or a user cannot act upon them.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    previous = LOGGER.handlers, LOGGER.propagate, LOGGER.level
    lines: queue.Queue[Any] = queue.Queue(_LINES)
    out = logging.StreamHandler(sys.stderr)
    out.setFormatter(_Json() if form == "json" else _Text())
    listener = logging.handlers.QueueListener(lines, out)
    listener.start()
    LOGGER.handlers, LOGGER.propagate = [_Queue(lines)], False
    LOGGER.setLevel(_NEVER if form == "off" else logging.INFO)
    try:
        yield
    finally:
        LOGGER.handlers, LOGGER.propagate = previous[:2]
        LOGGER.setLevel(previous[2])
        # With a timeout: the writer may be blocked on standard error.
        wait([in_background(listener.stop, "streamhouse-log")], _END_S)


def log_request(fields: dict[str, Any]) -> None:
    """Log a request; `fields`: client, token, method, path, route, status, ms, bytes."""
    LOGGER.info("%s", fields["path"], extra={_FIELDS: fields})
