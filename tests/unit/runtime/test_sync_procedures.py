"""The arguments of CALL sys.sync_mysql_table and sys.sync_mysql_database."""

from __future__ import annotations

import pytest

from streamhouse.errors import OptionError
from streamhouse.runtime.sync.procedures import options_of_call
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
