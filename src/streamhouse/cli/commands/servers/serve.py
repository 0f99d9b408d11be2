"""`streamhouse serve`: serves the tables and views of a warehouse over HTTP, live."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from streamhouse.cli.errors import INTERRUPTED, StopSignal
from streamhouse.cli.flags import (
    DEFAULT_WAREHOUSE,
    absolute,
    catalog_options,
    check_warehouse,
    with_flags,
    write_port,
)
from streamhouse.errors import OptionError
from streamhouse.options import choice, duration_ms, memory_bytes
from streamhouse.paimon.storage.files import is_local

if TYPE_CHECKING:
    import ssl

    from streamhouse.serve import tokens
    from streamhouse.serve.settings import ServerSettings

LOCAL_POLL = "50ms"
REMOTE_POLL = "500ms"
_END_S = 1.6
"""How long the server may take to stop."""
_TOKEN = "STREAMHOUSE_TOKEN"


@with_flags("serve")
def serve(
    warehouse: str = DEFAULT_WAREHOUSE,
    option: list[str] | None = None,
    views: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8080,
    port_file: str | None = None,
    token_file: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    allow_run: bool = False,
    allow_origin: list[str] | None = None,
    every: str | None = None,
    heartbeat: str = "15s",
    queue: int = 256,
    max_rows: int = 1_000_000,
    query_timeout: str = "10s",
    query_rows: int = 100_000,
    query_memory: str = "256MB",
    answers: str = "2GB",
    send_timeout: str = "30s",
    queries: int = 2,
    max_connections: int = 2_000,
    max_per_address: int = 1_500,
    rate: float = 200.0,
    log: str = "text",
) -> None:
    """Serve the tables and views of a warehouse over HTTP until Ctrl-C: rows, changes, SQL.

    GET /views lists them; GET /views/DATABASE.TABLE returns rows as JSON, CSV, Arrow or Parquet;
    …/changes streams the changes as they are committed, as server-sent events or over a WebSocket;
    POST /sql runs a SELECT. The web page is at /, the API documentation at /docs. Needs no JVM.

    Without a token it listens on this machine only. It ends within two seconds, with exit code 130
    at Ctrl-C and 0 at SIGTERM.
    """
    from streamhouse.serve.settings import (
        LOG_FORMATS,
        ConnectionLimits,
        ServerSettings,
        StreamSettings,
    )
    from streamhouse.serve.views.views_file import read_views

    poll = every or (LOCAL_POLL if is_local(warehouse) else REMOTE_POLL)
    send_s = duration_ms("--send-timeout", send_timeout, 100) / 1000
    settings = ServerSettings(
        warehouse=_options(warehouse, option),
        views=None if views is None else read_views(views),
        host=host,
        port=port,
        tokens=_tokens(token_file),
        tls=_tls(tls_cert, tls_key),
        allow_run=allow_run,
        allow_origins=tuple(allow_origin or ()),
        max_rows=max_rows,
        query_s=duration_ms("--query-timeout", query_timeout, 1) / 1000,
        query_rows=query_rows,
        query_memory=memory_bytes("--query-memory", query_memory),
        queries=queries,
        unsent_bytes=memory_bytes("--answers", answers),
        connections=ConnectionLimits(max_connections, max_per_address, send_s),
        rate=rate,
        log=choice("--log", log, LOG_FORMATS),
        streams=StreamSettings(
            every_ms=duration_ms("--every", poll, 1),
            heartbeat_s=duration_ms("--heartbeat", heartbeat, 10) / 1000,
            queue_events=queue,
        ),
    )
    _serve(settings, warehouse, port_file)


def _serve(settings: ServerSettings, warehouse: str, port_file: str | None) -> None:
    """Serve until a signal requests a stop, then end the process with its exit code."""
    from streamhouse.serve.http.server import bind, serve, url_of

    # Before the slow imports, so that a port in use is reported at once.
    listener = bind(settings.host, settings.port)
    port = listener.getsockname()[1]
    stop = StopSignal()

    from streamhouse.serve.http.app import create_app

    app = create_app(settings)

    def ready() -> None:
        if port_file is not None:
            write_port(port_file, port)
        url = url_of(settings.host, port, settings.tls is not None)
        print(f"Streamhouse serves {warehouse} at {url} (Ctrl-C ends)", file=sys.stderr, flush=True)

    try:
        serve(app, listener, settings, _with_deadline(stop), ready)
    finally:
        if port_file is not None and os.path.exists(port_file):
            os.unlink(port_file)
    _exit_now(INTERRUPTED if stop.interrupted else 0)


def _with_deadline(stop: StopSignal) -> Callable[[], bool]:
    """`stop.requested`, which also starts a timer that ends the process after `_END_S` seconds."""
    timers: list[threading.Timer] = []

    def requested() -> bool:
        if stop.requested() and not timers:
            code = INTERRUPTED if stop.interrupted else 0
            timers.append(threading.Timer(_END_S, _exit_now, (code,)))
            timers[0].daemon = True
            timers[0].start()
        return stop.requested()

    return requested


def _exit_now(code: int) -> NoReturn:
    """End the process without waiting for threads that still read tables."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _options(warehouse: str, option: list[str] | None) -> dict[str, str]:
    options = catalog_options(warehouse, option)
    check_warehouse(options)
    return options | {"warehouse": absolute(options["warehouse"])}


def _tokens(path: str | None) -> tuple[tokens.BearerToken, ...]:
    from streamhouse.serve import tokens

    from_file = () if path is None else tokens.read_token_file(path)
    from_environment = os.environ.get(_TOKEN)
    if from_environment is None:
        return from_file
    return (*from_file, tokens.token_of(from_environment))


def _tls(cert: str | None, key: str | None) -> ssl.SSLContext | None:
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        missing = "--tls-cert" if cert is None else "--tls-key"
        raise OptionError(
            f"option '{missing}' is missing: --tls-cert and --tls-key need each other"
        )
    from streamhouse.serve.http.server import tls_context

    return tls_context(cert, key)
