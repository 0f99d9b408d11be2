"""Tables of other systems as a script declares them: which there are, and their options."""

from __future__ import annotations

from collections.abc import Mapping

from streamhouse.errors import OptionError
from streamhouse.mysql import jdbc
from streamhouse.mysql import options as mysql
from streamhouse.options import nearest
from streamhouse.sql.options.known_options import check_datagen
from streamhouse.sql.plan import TableInfo

CONNECTORS = ("paimon", "datagen", "mysql-cdc", "jdbc")
_DATAGEN = {"scan.parallelism": "tasks are as many as SET 'parallelism.default' says"}


def check_connector(info: TableInfo, where: str) -> list[str]:
    """Check the options of a table that is not Paimon's; what a user should be told of them.

    Raises `OptionError` for an unknown connector or option, or a value that is not allowed.
    """
    options, told = connector_options(info), dict[str, str]()
    match info.connector:
        case "datagen":
            told = _DATAGEN
            given = {key: value for key, value in info.options.items() if key not in told}
            check_datagen(given, info.columns, where)
        case "jdbc":
            told = jdbc.WITHOUT_EFFECT
            jdbc.parse(options)
        case "mysql-cdc":
            told = mysql.WITHOUT_EFFECT
            mysql.parse(options)
        case _:
            raise OptionError(
                f"{where}: unknown connector '{info.connector}'; "
                f"{nearest(info.connector, CONNECTORS)}"
            )
    return [f"{where}: {text}" for text in _without_effect(options, told)]


def _without_effect(options: Mapping[str, str], known: Mapping[str, str]) -> list[str]:
    return [f"option '{key}' has no effect here: {known[key]}" for key in options if key in known]


def connector_options(table: TableInfo) -> dict[str, str]:
    """The options of a table that its connector reads."""
    return {key: value for key, value in table.options.items() if key != "connector"}
