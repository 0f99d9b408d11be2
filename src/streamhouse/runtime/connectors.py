"""Tables of other systems as a script declares them: which there are, and their options."""

from __future__ import annotations

from streamhouse.errors import OptionError
from streamhouse.mysql.jdbc import parse as parse_jdbc
from streamhouse.mysql.options import parse as parse_mysql
from streamhouse.mysql.options import without_effect
from streamhouse.options import nearest
from streamhouse.sql.options import check_datagen
from streamhouse.sql.plan import TableInfo

CONNECTORS = ("paimon", "datagen", "mysql-cdc", "jdbc")


def check_connector(info: TableInfo, where: str) -> list[str]:
    """Check the options of a table that is not Paimon's; what a user should be told of them.

    Raises `OptionError` for an unknown connector or option, or a value that is not allowed.
    """
    options = connector_options(info)
    match info.connector:
        case "datagen":
            check_datagen(info.options, info.columns, where)
        case "jdbc":
            parse_jdbc(options)
        case "mysql-cdc":
            parse_mysql(options)
            return [f"{where}: {text}" for text in without_effect(options)]
        case _:
            raise OptionError(
                f"{where}: unknown connector '{info.connector}'; "
                f"{nearest(info.connector, CONNECTORS)}"
            )
    return []


def connector_options(table: TableInfo) -> dict[str, str]:
    """The options of a table that its connector reads."""
    return {key: value for key, value in table.options.items() if key != "connector"}
