"""Prepared XA transactions, as a server lists them."""

from __future__ import annotations

from typing import Any, cast

import pymysql
import pytest

from streamhouse.connectors.mysql_cdc.binlog.xa import prepared_xids
from streamhouse.errors import ConnectError
from streamhouse.mysql.connection import Session, readable
from streamhouse.mysql.options import parse

OPTIONS = parse(
    {"hostname": "db", "username": "u", "password": "p", "database-name": "d", "table-name": "t"}
)


class _Answers:
    def __init__(self, answer: list[tuple[Any, ...]] | Exception) -> None:
        self._answer = answer

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        assert statement.startswith("XA RECOVER")
        if isinstance(self._answer, Exception):
            raise readable(self._answer, OPTIONS)
        return self._answer


def _listed(answer: list[tuple[Any, ...]] | Exception, mariadb: bool) -> set[str]:
    return prepared_xids(cast(Session, _Answers(answer)), mariadb)


def test_a_user_who_may_not_list_them_knows_of_none() -> None:
    """MySQL 8 and later answer so without the privilege XA_RECOVER_ADMIN."""
    text = "XAER_RMERR: Fatal error occurred in the transaction branch - check your data for ..."
    denied = pymysql.err.OperationalError(1401, text)
    assert _listed(denied, mariadb=False) == set()
    with pytest.raises(ConnectError):
        _listed(denied, mariadb=True)
    with pytest.raises(ConnectError):
        _listed(pymysql.err.OperationalError(1815, "Internal error"), mariadb=False)


def test_identifiers_as_each_server_writes_them() -> None:
    assert _listed([(7, 1, 1, "0x7062")], mariadb=False) == {"7:70:62"}
    assert _listed([(7, 1, 1, b"pb")], mariadb=True) == {"7:70:62"}
