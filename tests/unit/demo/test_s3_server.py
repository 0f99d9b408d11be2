"""The request log of a private S3 server, and the benchmark's evaluation of it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.s3_requests import S3Request, read_requests, recorded
from benchmarks.server_time import Busy, viewing, writing

RUST, JAVA, BOTO = "paimon-rust/0.4.0", "Hadoop 3.3.4, aws-sdk-java/1.12", "Boto3/1.44"


def request(
    began: float, seconds: float, path: str = "/x", method: str = "GET", **rest: Any
) -> S3Request:
    given = {"query": "", "status": 200, "agent": RUST, "port": 1, **rest}
    return S3Request(began, seconds, method, path, **given)


def table(name: str) -> str:
    return f"/streamhouse/warehouse/shop.db/{name}"


def test_requests_are_recorded_with_their_response(tmp_path: Path) -> None:
    def app(environ: Mapping[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        start("404 Not Found", [])
        return iter([b"no", b"ne"])

    path = tmp_path / "requests"
    with open(path, "w", encoding="utf-8") as file:
        environ = {
            "REQUEST_METHOD": "HEAD",
            "PATH_INFO": "/bucket/key",
            "QUERY_STRING": "a=b",
            "HTTP_USER_AGENT": RUST,
            "REMOTE_PORT": "5000",
        }
        assert recorded(app, file)(environ, lambda *_: io.BytesIO().write) == [b"no", b"ne"]
    (one,) = read_requests(path)
    found = (one.method, one.path, one.query, one.status, one.agent, one.port)
    assert found == ("HEAD", "/bucket/key", "a=b", 404, RUST, 5000)
    assert one.began <= one.ended


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "requests"
    path.write_text('{"began": 1')
    assert list(read_requests(path)) == []


def test_requests_at_the_same_time_count_once() -> None:
    busy = Busy([request(10.0, 1.0), request(10.5, 1.0), request(10.6, 0.1), request(20.0, 1.0)])
    first, last = np.array([0, 10_250, 10_250, 11_500]), np.array([30_000, 11_250, 20_500, 20_000])
    assert busy.between(first, last).round(3).tolist() == [2500.0, 1000.0, 1750.0, 0.0]


def test_only_what_an_order_waits_for_is_on_its_path() -> None:
    lock, view = table("orders/.commit-lock"), table("country_sales")
    data = request(1.0, 0.1, table("orders/bucket-0/data-1"), "PUT")
    locking = request(2.0, 0.1, lock, "PUT", agent=BOTO)
    plan = request(2.1, 0.1, table("orders/manifest/manifest-1"))
    freed = request(2.2, 0.1, lock, "DELETE", agent=BOTO)
    read = request(3.0, 0.1, table("orders/bucket-0/data-1"), status=206)
    displayed = request(3.1, 0.1, f"{view}/snapshot/snapshot-1", "PUT")
    aside = [
        request(2.15, 0.1, table("orders/manifest/manifest-1"), agent=JAVA),
        request(2.5, 0.1, table("orders/manifest/manifest-1")),
        request(3.2, 0.1, f"{view}/snapshot/snapshot-2", agent=BOTO, status=404),
        request(3.3, 0.1, f"{view}/consumer/consumer-1", "PUT", agent=BOTO),
        request(3.4, 0.1, table("orders__lineage/bucket-0/data-1"), "PUT"),
    ]
    every = sorted([data, locking, plan, freed, read, displayed, *aside], key=lambda one: one.began)
    assert writing(every) == [data, locking, plan, freed]
    assert viewing(every) == [read, displayed]
