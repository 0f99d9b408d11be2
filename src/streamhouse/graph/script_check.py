"""Checks and draws scripts for a server, in a worker process that ends with the script.

docs/decisions/064-what-clients-of-the-server-may-do.md says why.
"""

import os
import re
import resource
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from streamhouse.errors import SqlError, StreamhouseError, UnsupportedSqlError
from streamhouse.graph.build import graph_of
from streamhouse.graph.svg import draw
from streamhouse.options import hide_secrets
from streamhouse.secret_references import ALLOWED
from streamhouse.sql import syntax
from streamhouse.sql.options.store_options import is_store_option
from streamhouse.sql.script_variables import with_references, with_variables
from streamhouse.sql.statements.alter_table import AlterTable
from streamhouse.sql.statements.create_view import CreateView
from streamhouse.sql.statements.script import parse_script

_NICE = 5
_MAX_MEMORY = 4 << 30
_PLACED = re.compile(r"line (\d+), column (\d+): ")


def check_script(request: Mapping[str, Any]) -> dict[str, Any]:
    """Plan a script; returns the response.

    That is `{"ok": true, "statements", "graph"}`, with `svg` if requested, or
    `{"ok": false, "error": {"message", "line", "column"}}`.

    The script is parsed and planned as by `run`, but nothing is created; no server is queried, and
    only files of the warehouse are read. `applied`: the script already runs, so the tables that it
    creates may exist. Only with `functions` may it create Python functions, whose modules are then
    imported.
    """
    try:
        text = with_variables(request["sql"], {})
        # Whoever may not run pipelines could read the environment by the errors about its values.
        statements = parse_script(with_references(text) if request.get("functions") else text)
        if not request.get("functions"):
            _refuse_functions(statements)
        planned = [_without_store_options(statement) for statement in statements]
        if request.get("applied"):
            planned = [
                _if_absent(statement)
                for statement in planned
                if not isinstance(statement, AlterTable)
            ]
        graph = graph_of(planned, request["warehouse"])
        response = {"ok": True, "statements": len(statements), "graph": graph.record()}
        return {**response, "svg": draw(graph)} if request.get("svg") else response
    except StreamhouseError as error:
        return {"ok": False, "error": _error(error)}
    except (RecursionError, MemoryError):
        message = "the script is nested too deeply; write parts of it as views"
    except Exception as error:  # noqa: BLE001  # the next script must find this process alive
        message = f"the script cannot be planned ({type(error).__name__})"
    return {"ok": False, "error": {"message": message, "line": None, "column": None}}


def check_alone(request: Mapping[str, Any]) -> dict[str, Any]:
    """As `check_script`, in a process that does nothing else afterwards.

    From now on it may write no files, it has a low priority and at most 4 GiB of data, and what
    libraries print is discarded.
    """
    for number in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    os.environ.setdefault(ALLOWED, "")
    for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):
        resource.setrlimit(limit, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    own = _MAX_MEMORY if most == resource.RLIM_INFINITY else min(_MAX_MEMORY, most)
    resource.setrlimit(resource.RLIMIT_DATA, (own, most))
    os.nice(_NICE)
    return check_script(request)


def _without_store_options(statement: syntax.Statement) -> syntax.Statement:
    """Remove storage options from CREATE CATALOG: every catalog stands for the warehouse."""
    if not isinstance(statement, syntax.CreateCatalog):
        return statement
    options = {k: v for k, v in statement.options.items() if not is_store_option(k)}
    return replace(statement, options=options)


def _refuse_functions(statements: Sequence[syntax.Statement]) -> None:
    """Raise at the first CREATE FUNCTION: importing a module runs what is in it."""
    for statement in statements:
        if isinstance(statement, syntax.CreateFunction):
            raise UnsupportedSqlError.at(
                statement.position,
                "this server does not run Python functions for you; have it started with "
                "--allow-run, and use a token that may run pipelines",
            )


def _if_absent(statement: syntax.Statement) -> syntax.Statement:
    """The statement with IF [NOT] EXISTS, so that it is no error to have run it before."""
    match statement:
        case syntax.CreateDatabase() | syntax.CreateTable() | CreateView():
            return replace(statement, if_not_exists=True)
        case syntax.Drop():
            return replace(statement, if_exists=True)
    return statement


def _error(error: StreamhouseError) -> dict[str, Any]:
    if isinstance(error, SqlError):
        message, place = error.message, (error.line or None, error.column or None)
    else:
        message, place = str(error), (None, None)
        if match := _PLACED.match(message):
            message, place = message[match.end() :], (int(match[1]), int(match[2]))
    return {"message": hide_secrets(message), "line": place[0], "column": place[1]}
