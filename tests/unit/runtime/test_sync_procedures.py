"""The arguments of CALL sys.sync_mysql_table and sys.sync_mysql_database."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import get_type_hints

import pytest

from streamhouse.cli.commands.mysql import sync
from streamhouse.cli.commands.mysql.sync import OF_RUNS
from streamhouse.errors import OptionError
from streamhouse.procedures.registry import find
from streamhouse.runtime.procedures import options_of_call
from streamhouse.runtime.sync.options import DatabaseArguments, TableArguments
from streamhouse.sql.syntax import Argument, ArgumentValue

CONF = {"hostname": "db", "username": "u", "password": "a,b=c", "database-name": "shop"}


def call(conf: ArgumentValue) -> str:
    arguments = [Argument("database", "ods"), Argument("mysql_conf", conf)]
    options = options_of_call("sync_mysql_database", arguments, {"warehouse": "w"}, "default")
    return options.mysql.password


def test_a_map_has_values_with_commas() -> None:
    assert call(CONF) == "a,b=c"


def test_the_error_of_a_wrong_text_quotes_no_password() -> None:
    text = ",".join(f"{key}={value}" for key, value in CONF.items()).replace("b=c", "secret")
    with pytest.raises(OptionError, match=r"'key=value,key=value', or MAP\[") as caught:
        call(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("procedure", "command", "arguments", "positional"),
    [
        ("sync_mysql_table", sync.mysql_table, TableArguments, {"database", "table"}),
        ("sync_mysql_database", sync.mysql_database, DatabaseArguments, {"database"}),
    ],
    ids=["table", "database"],
)
def test_sql_the_command_and_python_have_the_same_arguments(
    procedure: str, command: Callable[..., None], arguments: type, positional: set[str]
) -> None:
    required = {"mysql_conf", *positional}
    in_python = set(get_type_hints(arguments))
    in_sql = {parameter.name for parameter in find(procedure).parameters}
    flags = set(inspect.signature(command).parameters) - OF_RUNS
    assert in_sql - required == in_python
    assert flags - required == in_python
