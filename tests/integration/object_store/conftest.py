"""A private S3 server for all tests; each test has a warehouse of its own in its bucket."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.object_store.faulty_proxy import FaultyProxy

from streamhouse.demo.s3_server import BUCKET, S3Server
from streamhouse.paimon.catalog import warehouse
from streamhouse.paimon.storage import followed_snapshots


class Clock:
    """Time that passes only when a test says so, in the place of the module `time`."""

    def __init__(self) -> None:
        self._now = time.monotonic()

    def monotonic(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """For tests that count requests: what is known of a table does not expire meanwhile."""
    made = Clock()
    for module in (followed_snapshots, warehouse):
        monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def s3(
    s3_server: S3Server,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> S3Server:
    """The server, named by the environment, as it is for users of AWS's tools."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    # The same for all tests, which can so use the JVMs of others.
    nowhere = tmp_path_factory.getbasetemp()
    monkeypatch.setenv("AWS_CONFIG_FILE", str(nowhere / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(nowhere / "no-credentials"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return s3_server


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultyProxy]:
    """A proxy of the server that makes requests fail as a test chooses."""
    with FaultyProxy(s3.port) as proxy:
        yield proxy


@pytest.fixture
def lake(s3: S3Server) -> str:
    """The location of an empty warehouse."""
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"
