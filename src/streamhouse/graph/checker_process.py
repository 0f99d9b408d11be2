"""Checks and draws scripts for a server, in a process of its own that can be killed at any time.

It reads one request per line, `{"sql", "warehouse", "applied", "svg", "functions"}`, and responds
to each with a line, see `check_script`. `warehouse` contains the options of the catalog. The first
line that it writes signals that it is ready. It ends after `IDLE_S` seconds without a request, or
when its input ends.

docs/decisions/073-scripts-are-checked-in-their-own-process.md says why.
"""

from __future__ import annotations

import json
import os
import re
import resource
import select
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, BinaryIO

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

READY = b'"ready"\n'
IDLE_S = 120.0
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
        return {"ok": False, "error": _error_record(error)}
    except (RecursionError, MemoryError):
        message = "the script is nested too deeply; write parts of it as views"
    except Exception as error:  # noqa: BLE001  # the next script must find this process alive
        message = f"the script cannot be planned ({type(error).__name__})"
    return {"ok": False, "error": {"message": message, "line": None, "column": None}}


def main() -> None:
    """Respond to requests until the input ends, or is idle for `IDLE_S` seconds."""
    responses = _reserve_output()
    os.environ.setdefault(ALLOWED, "")
    _limit()
    _write_line(responses, READY)
    requests = sys.stdin.buffer
    # The server sends one request at a time, so no further one is in the buffer.
    while select.select([requests], [], [], IDLE_S)[0]:
        line = requests.readline()
        if not line:
            return
        _write_line(responses, json.dumps(check_script(json.loads(line))).encode() + b"\n")


def _reserve_output() -> BinaryIO:
    """Reserve standard output for responses: what libraries print is discarded."""
    responses = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return responses


def _write_line(responses: BinaryIO, line: bytes) -> None:
    responses.write(line)
    responses.flush()


def _limit() -> None:
    """Forbid writing files, limit the memory to 4 GiB, and lower the process's priority."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    os.nice(_NICE)


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


def _error_record(error: StreamhouseError) -> dict[str, Any]:
    if isinstance(error, SqlError):
        return _error(error.message, (error.line, error.column))
    text = str(error)
    match = _PLACED.match(text)
    if match is None:
        return _error(text, (0, 0))
    return _error(text[match.end() :], (int(match[1]), int(match[2])))


def _error(message: str, place: Sequence[int]) -> dict[str, Any]:
    line, column = place
    return {"message": hide_secrets(message), "line": line or None, "column": column or None}


if __name__ == "__main__":
    main()
