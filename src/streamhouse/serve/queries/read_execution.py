"""Executes a read request, and converts every failure to an error of `streamhouse.errors`."""

from __future__ import annotations

import contextlib
import os
import re
import traceback
from typing import TYPE_CHECKING

from streamhouse.errors import (
    LimitError,
    NoSpaceError,
    SqlError,
    StreamhouseError,
    is_full,
    is_panic,
)
from streamhouse.serve.queries.read_request import ReadRequest, ReadResult, RowsRequest

if TYPE_CHECKING:
    from streamhouse.paimon.catalog.warehouse import Warehouse


# How file readers report that the system refused to allocate memory.
_NO_MEMORY = re.compile(r"not enough memory|allocation (?:error|failed)|malloc|bad_alloc", re.I)


class UnexpectedError(StreamhouseError):
    """An unexpected error; `trace` is its traceback without the message, which may hold values."""

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


def run_request(warehouse: Warehouse, request: ReadRequest) -> ReadResult:
    """Run a request and write its rows to the target's file; on failure the file is deleted.

    Raises errors of `streamhouse.errors` only. An unexpected exception becomes an
    `UnexpectedError`; for a request with a client's SQL text its message blames the query, else the
    server.
    """
    try:
        return _run(warehouse, request)
    except StreamhouseError as error:
        delete_output(request)
        if not request.trusted and _NO_MEMORY.search(str(error)):
            raise LimitError.of_memory(request.limits.memory) from None
        raise
    except RecursionError:
        delete_output(request)
        raise SqlError("the query is nested too deeply; reduce the levels of nesting") from None
    except MemoryError:
        delete_output(request)
        raise LimitError.of_memory(request.limits.memory) from None
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        delete_output(request)
        if is_full(error):
            raise NoSpaceError from None
        trace = "".join(traceback.format_tb(error.__traceback__)) + type(error).__name__
        message = "the query cannot be run; simplify it"
        if request.trusted:
            message = "internal server error; the server's log has the details"
        raise UnexpectedError(message, trace) from None


def read_if_small(warehouse: Warehouse, request: RowsRequest) -> ReadResult | None:
    """Run a request if it is small enough for a thread of the server, else return None.

    Only for requests without a client's SQL text. Deletes the target's file unless it succeeds.
    Raises errors unchanged, but `NoSpaceError` if a disk is full.
    """
    from streamhouse.serve.queries import view_rows

    try:
        result = view_rows.read_if_small(warehouse, request)
    except BaseException as error:
        delete_output(request)
        if is_full(error):
            raise NoSpaceError from None
        raise
    if result is None:
        delete_output(request)
    return result


def _run(warehouse: Warehouse, request: ReadRequest) -> ReadResult:
    # Imported here, since these modules load slowly and the server's start does not need them.
    if isinstance(request, RowsRequest):
        from streamhouse.serve.queries import view_rows

        return view_rows.read_rows(warehouse, request)
    from streamhouse.serve.queries import client_select

    return client_select.run_select(warehouse, request)


def delete_output(request: ReadRequest) -> None:
    """Delete the target's file, if it exists."""
    with contextlib.suppress(OSError):
        os.unlink(request.target.path)
