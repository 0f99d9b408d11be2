"""Limits the connections whose clients have sent no request yet, and is fair between clients."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from functools import lru_cache

_ADDRESSES = 4_096


class SilentConnections:
    """The connections without a request: in their TLS handshake, or before their first head.

    There are at most `most`. For one more, the oldest of the client with the most is aborted, so
    that a client with few always has the time that a handshake takes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._clients: dict[object, str] = {}
        self._by_client: dict[str, dict[object, Callable[[], object]]] = {}

    def add(
        self, connection: object, client: tuple[str, int] | None, abort: Callable[[], object]
    ) -> None:
        """Add a connection; aborts another if there are too many."""
        name = self._clients[connection] = client_network(client)
        self._by_client.setdefault(name, {})[connection] = abort
        if len(self._clients) > self._most:
            busiest = max(self._by_client.values(), key=len)
            oldest, abort = next(iter(busiest.items()))
            self.remove(oldest)
            abort()

    def remove(self, connection: object) -> None:
        """Remove a connection that has sent a request, or is closed; a second call does nothing."""
        name = self._clients.pop(connection, None)
        if name is not None:
            del self._by_client[name][connection]
            if not self._by_client[name]:
                del self._by_client[name]


def client_network(client: tuple[str, int] | None) -> str:
    """The address by which clients are counted: an IPv4 address, or the /64 network of an IPv6 one.

    An IPv4-mapped IPv6 address counts as its IPv4 address. Empty if the address is unknown.
    """
    return "" if client is None else _client_network(client[0])


@lru_cache(_ADDRESSES)
def _client_network(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address.packed, 64), strict=False))
