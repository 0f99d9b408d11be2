"""A private S3 server for all tests; each test has a warehouse of its own in its bucket."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.object_store.faulty_proxy import FaultyProxy

from streamhouse.demo.s3_server import BUCKET, S3Server


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
