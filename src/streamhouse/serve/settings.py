"""Everything that a server is told at its start."""

from __future__ import annotations

import ipaddress
import math
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from streamhouse.engine import Limits
from streamhouse.errors import OptionError
from streamhouse.serve.auth.tokens import HOW_TO, Token
from streamhouse.serve.streams.follow_settings import FollowSettings
from streamhouse.serve.views.served_view import ServedView

LOG_FORMATS = ("text", "json", "off")
ANY_ORIGIN = "*"

MAX_LINE_BYTES = 16 << 10
"""The longest path and query string of a request."""
MAX_HEAD_BYTES = 32 << 10
"""The longest headers of a request, together."""
MAX_BODY_BYTES = (1 << 20) + (64 << 10)
"""The longest body of a request; a script of 1 MiB fits into it."""
MAX_SQL_CHARACTERS = 1_000_000
_READ_S = 60.0
_READ_SPILL = "16384MiB"
MAX_FILTER_CHARACTERS = 8_000
MAX_ANSWER_BYTES = 1 << 30
"""The longest answer; it lies in a temporary file until it was sent."""


@dataclass(frozen=True)
class ServerSettings:
    """A server's warehouse, address, limits and rights.

    `warehouse` are the catalog options with `warehouse` among them. `views` are those served, None
    for every table and view of the warehouse. `tokens` say who may do what; without any, everybody
    who reaches the server sees all, which is why it then listens to this machine only.

    `tls` has the certificate of a server that speaks TLS itself (`serve.http.tls`).

    `max_rows` bounds an answer of GET. A query over SQL or with a filter runs at most `query_s`
    seconds, `query_memory` bytes, and gives `query_rows` rows; `queries` run at a time.
    `max_connections` bounds connections, `max_per_address` those of one address (of IPv6, of one
    network of 64 bits; 0 for any number). `rate` is how many requests a second one client (its
    token or address) may make, ten times as many at once; 0 for any number.
    """

    warehouse: Mapping[str, str]
    views: tuple[ServedView, ...] | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    tokens: tuple[Token, ...] = field(default=(), repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    allow_run: bool = False
    allow_origins: tuple[str, ...] = ()
    max_rows: int = 1_000_000
    query_s: float = 10.0
    query_rows: int = 100_000
    query_memory: int = 256 << 20
    queries: int = 2
    max_connections: int = 2_000
    max_per_address: int = 1_500
    rate: float = 200.0
    send_s: float = 30.0
    """How long a reader may take nothing of what is sent to it."""
    answer_bytes: int = 2 << 30
    """How much of answers may be on its way to readers, in sum."""
    log: str = "text"
    follow: FollowSettings = field(default_factory=FollowSettings)

    def __post_init__(self) -> None:
        if not self.is_local and not self.tokens:
            raise OptionError(
                f"option '--host': on {self.host} anybody could read the tables; {HOW_TO}. Without "
                "a token the server listens to this machine only, as with --host 127.0.0.1"
            )
        if not 0 <= self.rate < math.inf:
            # Not `rate < 0`: what is no number is neither less nor more.
            raise OptionError(
                f"option '--rate': {self.rate:g} is no number of requests; give 0 for any number"
            )
        for origin in self.allow_origins:
            _check_origin(origin)

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the server."""
        return is_loopback(self.host)

    @property
    def read_limits(self) -> Limits:
        """What reading rows may take, where no text of a client's goes into the query."""
        limits = self.query_limits
        return Limits(max(_READ_S, self.query_s), limits.memory, _READ_SPILL)

    @property
    def query_limits(self) -> Limits:
        """What one query may take."""
        mebibytes = max(1, self.query_memory >> 20)
        return Limits(self.query_s, f"{mebibytes}MiB", f"{max(1_024, 4 * mebibytes)}MiB")

    @property
    def origin_set(self) -> frozenset[str]:
        """The origins of other sites whose pages may read answers."""
        return frozenset(origin.rstrip("/") for origin in self.allow_origins)


def is_loopback(host: str) -> bool:
    """Whether a host's name or address means this machine."""
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
