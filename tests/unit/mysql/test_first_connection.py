"""How long a pipeline waits for a MySQL that refuses connections."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamhouse.connectors.mysql_cdc.relay.relay import Relays
from streamhouse.demo.mariadb import free_port
from streamhouse.errors import ConnectError
from streamhouse.mysql import connection


@pytest.mark.parametrize("resumes", [False, True])
def test_one_connection_waits_for_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    resumes: bool,
) -> None:  # fmt: skip
    """A query that has never run gives up soon, and nothing else tries meanwhile."""
    assert connection.FIRST_START_SECONDS <= 8
    short, long = ("_START_SECONDS", "FIRST_START_SECONDS")[:: 1 if resumes else -1]
    monkeypatch.setattr(connection, short, 0.2)
    monkeypatch.setattr(connection, long, 3600.0)
    options = {
        "hostname": "127.0.0.1", "port": str(free_port()), "username": "u", "password": "p",
        "database-name": "shop", "table-name": "orders",
    }  # fmt: skip
    source: Any = SimpleNamespace(
        source_spec=SimpleNamespace(options=options),
        last_offset={"file": "binlog.000001", "pos": 4} if resumes else {},
        checkpoint_path=tmp_path / "query",
    )
    relays, threads = Relays(lambda *_: []), set(threading.enumerate())
    with pytest.raises(ConnectError, match="cannot be reached"):
        relays.start([source])
    # A thread of an earlier test may end meanwhile.
    assert threads.issuperset(threading.enumerate()) and capsys.readouterr().err == ""
