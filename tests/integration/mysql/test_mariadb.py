"""The private MariaDB of the demo and of these tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pymysql
import pytest

from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB
from streamhouse.errors import ConnectError


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    MariaDB(tmp_path)._stop_leftover()


def test_a_second_start_resumes_the_data_on_the_same_port(home: Path) -> None:
    with MariaDB(home) as first:
        first.execute("CREATE DATABASE d", "CREATE TABLE d.t (i INT PRIMARY KEY)")
        first.execute("INSERT INTO d.t VALUES (1)")
        port = first.port
    assert first.pid is None
    with MariaDB(home) as second:
        assert second.execute("SELECT i FROM d.t") == [(1,)]
        assert second.port == port


def test_servers_share_no_folder_for_temporary_tables(home: Path, tmp_path: Path) -> None:
    """A server that starts removes all temporary tables there, also those of another's set-up."""
    lost = tmp_path / "#sql-temptable-1-1-1.MAI"
    lost.touch()
    with patch.dict(os.environ, TMPDIR=str(tmp_path)), MariaDB(home) as server:
        assert server.execute("SELECT @@tmpdir") == [(str(home / "tmp"),)]
    assert lost.exists()


def test_a_server_left_behind_is_replaced(home: Path) -> None:
    left = MariaDB(home).start()
    pid = left.pid
    assert pid is not None
    with MariaDB(home) as server:
        assert server.pid not in (None, pid)
        assert left.pid is None
        assert server.execute("SELECT 1") == [(1,)]
    left.stop()


def test_the_user_can_follow_the_binlog_but_not_write(mariadb: MariaDB) -> None:
    mariadb.execute("CREATE DATABASE IF NOT EXISTS grants_db")
    connection = pymysql.connect(host="127.0.0.1", port=mariadb.port, user=USER, password=PASSWORD)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SHOW BINARY LOGS")
            assert cursor.fetchone() is not None
            with pytest.raises(pymysql.err.OperationalError):
                cursor.execute("CREATE TABLE grants_db.t (i INT)")
    finally:
        connection.close()


def test_the_error_of_a_missing_server_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    with pytest.raises(ConnectError, match=r"run `apt-get install mariadb-server-core mariadb"):
        MariaDB(tmp_path).start()


def test_a_failed_installation_shows_its_first_error(tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to(tmp_path / "nowhere" / "data")
    with pytest.raises(ConnectError, match="mariadb-install-db failed in .*annot create") as caught:
        MariaDB(tmp_path).start()
    assert "https://" not in str(caught.value)


def test_a_bad_server_option_is_reported_in_one_line(home: Path) -> None:
    with pytest.raises(ConnectError, match="unknown variable 'no-such-option=1'") as caught:
        MariaDB(home, server_options=["--no-such-option=1"]).start()
    assert len(str(caught.value).splitlines()) == 1
