"""How long a private S3 server worked on what the orders of `freshness` waited for."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import numpy as np
from benchmarks.s3_requests import S3Request

Times = np.ndarray[Any, Any]


class Busy:
    """When at least one of some requests was in the server: parallel ones count once."""

    def __init__(self, requests: Sequence[S3Request]) -> None:
        self._at, self._total = [0.0], [0.0]
        for one in sorted(requests, key=lambda request: request.began):
            began, ended = max(one.began * 1000, self._at[-1]), one.ended * 1000
            if ended > began:
                self._at += [began, ended]
                self._total += [self._total[-1], self._total[-1] + ended - began]

    def between(self, first: Times, last: Times) -> Times:
        """For each pair of times (epoch ms), for how many ms between them."""
        until, since = (np.interp(times, self._at, self._total) for times in (last, first))
        return np.asarray(until - since)


def writing(requests: Sequence[S3Request]) -> list[S3Request]:
    """The requests by which rows get into `orders`: data files, and those of a commit."""
    own = [
        request for request in requests if _of_query(request) and "/shop.db/orders/" in request.path
    ]
    found, locked = [], False
    for one in own:
        if one.path.endswith("/.commit-lock"):
            locked = one.method == "PUT" and one.status == 200
        if locked and one.status != 206 or one.method in ("PUT", "DELETE"):
            found.append(one)
    return found


def viewing(requests: Sequence[S3Request]) -> list[S3Request]:
    """The requests by which orders get into the view.

    Left out are plans of `orders`, which look like those of its own commits.
    """
    view = ("/shop.db/country_sales/", "/shop.db/country_sales__pending/", "/shop.db/customers/")
    return [
        request
        for request in requests
        if _of_query(request)
        and (
            any(name in request.path for name in view)
            or "/shop.db/orders/bucket-0/" in request.path
        )
        and ("/orders/" not in request.path or request.method == "GET")
    ]


def _of_query(one: S3Request) -> bool:
    """Whether a query made a request: not the Java core, and no poll for a newer snapshot."""
    poll = "Boto3" in one.agent and one.status == 404
    return not (poll or "java" in one.agent.lower() or "/consumer/" in one.path)


def listed(requests: Sequence[S3Request], most: int = 40) -> list[str]:
    """The requests by client, method, object and status: how many, and ms in the server."""
    counts = Counter[tuple[str, ...]]()
    seconds = defaultdict[tuple[str, ...], float](float)
    for request in requests:
        kind = (_client(request), request.method, str(request.status), _object(request))
        counts[kind] += 1
        seconds[kind] += request.seconds
    return [
        f"{count:6} {1000 * seconds[kind] / count:8.1f} ms  {' '.join(kind)}"
        for kind, count in counts.most_common(most)
    ]


def _client(one: S3Request) -> str:
    if "java" in one.agent.lower():
        return "java"
    return "python" if "Boto3" in one.agent else "rust"


def _object(one: S3Request) -> str:
    """The object without its numbers, or the listed folder."""
    prefix = re.search(r"prefix=([^&]*)", one.query)
    path = one.path if prefix is None else f"list {unquote(prefix[1])}"
    return re.sub(r"[0-9a-f]{8}[0-9a-f-]{8,}[^/]*|\d+", "*", path.rpartition("shop.db")[2] or path)
