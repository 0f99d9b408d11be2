"""Settings of a server, fixed at its start."""

import ipaddress
import math
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from streamhouse.duckdb_engine import Limits
from streamhouse.errors import OptionError
from streamhouse.serve.tokens import TOKEN_ADVICE, BearerToken
from streamhouse.serve.views.served_view import ServedView

KIB = 1 << 10
MIB = 1 << 20


@dataclass(frozen=True)
class StreamSettings:
    """Intervals and limits of all streams of a server.

    `every_ms`: the poll interval of a table with subscribers. `heartbeat_s`: the interval of
    heartbeats while nothing changes. `linger_s`: how long a table is still polled after its last
    subscriber has left. `missing_s`: how long a table may be missing before its subscribers get an
    error; if it returns earlier, they get its new state.

    `max_rows`: the most rows in an initial state, in one change, and in the missed events of a
    subscriber that resumes; anything larger is refused. `queue_events` and `queue_bytes`: the
    backlog at which a subscriber is disconnected. `history_bytes`: recent events of all streams,
    kept for subscribers that resume. `state_bytes`: initial states being sent, of all streams;
    beyond it the subscribers of the oldest are disconnected. `part_rows` and `part_bytes`: where
    large events are split; a part has at most so many rows, and about so many bytes. `table_bytes`:
    the memory of all tables and views that are kept for comparison. `max_streams`: how many views,
    or selections of their columns, may have streams at the same time.
    """

    every_ms: int = 50
    heartbeat_s: float = 15.0
    linger_s: float = 10.0
    max_rows: int = 200_000
    queue_events: int = 256
    queue_bytes: int = 16 * MIB
    history_bytes: int = 64 * MIB
    state_bytes: int = 128 * MIB
    part_rows: int = 5_000
    part_bytes: int = 256 * KIB
    table_bytes: int = 256 * MIB
    max_streams: int = 256
    missing_s: float = 2.0


LOG_FORMATS = ("text", "json", "off")
ANY_ORIGIN = "*"

MAX_LINE_BYTES = 16 << 10
"""The longest path and query string of a request."""
MAX_HEAD_BYTES = 32 << 10
"""The longest headers of a request, in total."""
MAX_BODY_BYTES = (1 << 20) + (64 << 10)
"""The longest request body; a script of 1 MiB fits."""
_READ_S = 60.0
_READ_SPILL = "16384MiB"
MAX_FILTER_CHARACTERS = 8_000
MAX_RESPONSE_BYTES = 1 << 30
"""The longest response; it is kept in a temporary file until it has been sent."""


@dataclass(frozen=True)
class ConnectionLimits:
    """How many connections there may be, and how long a client may accept no data.

    `total` limits all connections, `per_address` those of one address (for IPv6 of one /64 network;
    0: unlimited), `silent` those that have sent no request yet (beyond it the oldest of the client
    with the most of them is closed). A client that accepts no data for `send_s` seconds is
    disconnected.
    """

    total: int = 2_000
    per_address: int = 1_500
    send_s: float = 30.0
    silent: int = 500


@dataclass(frozen=True)
class ServerSettings:
    """A server's warehouse, address, limits and permissions.

    `warehouse` are the catalog options, with `warehouse` among them. `views` are the served views,
    None for every table and view of the warehouse. `tokens` grant permissions. Without tokens every
    client sees everything, so the server must then listen on a loopback address.

    `tls` has the certificate if the server terminates TLS itself (`serve.http.tls`), else None.

    `max_rows` limits the rows of a GET. A SELECT, or a GET with a filter, runs at most `query_s`
    seconds within `query_memory` bytes; a SELECT returns at most `query_rows` rows. `queries` is
    how many of them, and of large GETs, run at a time (`serve.admission.fair_queue`). `rate` is
    how many requests a second one client (its token or address) may make, with bursts of ten times
    as many; 0: unlimited.
    """

    warehouse: Mapping[str, str]
    views: tuple[ServedView, ...] | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    tokens: tuple[BearerToken, ...] = field(default=(), repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    allow_run: bool = False
    allow_origins: tuple[str, ...] = ()
    max_rows: int = 1_000_000
    query_s: float = 10.0
    query_rows: int = 100_000
    query_memory: int = 256 << 20
    queries: int = 2
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    rate: float = 200.0
    unsent_bytes: int = 2 << 30
    """Limit on the total size of all responses that are not fully sent yet."""
    log: str = "text"
    streams: StreamSettings = field(default_factory=StreamSettings)

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.tokens:
            raise OptionError(
                f"option '--host': anyone who reaches {self.host} could read the tables; "
                f"{TOKEN_ADVICE}. Without a token the server listens on this machine only: --host "
                "127.0.0.1"
            )
        if not 0 <= self.rate < math.inf:
            # Not `rate < 0`, which is false for NaN.
            raise OptionError(
                f"option '--rate': {self.rate:g} is not a number of requests; give 0 for no limit"
            )
        for origin in self.allow_origins:
            _check_origin(origin)

    @property
    def read_limits(self) -> Limits:
        """Limits of a query that contains no text from a client."""
        limits = self.query_limits
        return Limits(max(_READ_S, self.query_s), limits.memory, _READ_SPILL)

    @property
    def query_limits(self) -> Limits:
        """Limits of a query that contains text from a client."""
        mebibytes = max(1, self.query_memory >> 20)
        return Limits(self.query_s, f"{mebibytes}MiB", f"{max(1_024, 4 * mebibytes)}MiB")

    @property
    def origin_set(self) -> frozenset[str]:
        """Allowed cross-site origins (CORS), without trailing slashes."""
        return frozenset(origin.rstrip("/") for origin in self.allow_origins)


def is_loopback(host: str) -> bool:
    """Whether a host name or address is a loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def _check_origin(origin: str) -> None:
    scheme, separator, rest = origin.rstrip("/").partition("://")
    if origin == ANY_ORIGIN:
        return
    if scheme not in ("http", "https") or not separator or not rest or "/" in rest:
        raise OptionError(
            f"option '--allow-origin': '{origin}' is not an origin; write it as "
            "https://dashboard.example.com, or * for any"
        )
