"""Answers to questions, and every way in which one can fail."""

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


# What a reader of files says where the system refuses it memory.
_NO_MEMORY = re.compile(r"not enough memory|allocation (?:error|failed)|malloc|bad_alloc", re.I)


class UnexpectedError(StreamhouseError):
    """What no error of ours foresees; `trace` says where, without any value."""

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


def answer(warehouse: Warehouse, question: ReadRequest) -> ReadResult:
    """The answer, its rows in the question's file; no file is left where there is none.

    Raises errors of `streamhouse.errors` only: a client's text that brings down a part of the
    machinery is the client's to change, and `UnexpectedError` says where it did.
    """
    try:
        return _answer(warehouse, question)
    except StreamhouseError as error:
        discard(question)
        if not question.trusted and _NO_MEMORY.search(str(error)):
            raise LimitError.of_memory(question.limits.memory) from None
        raise
    except RecursionError:
        discard(question)
        raise SqlError("the query is nested too deeply; write it in fewer levels") from None
    except MemoryError:
        discard(question)
        raise LimitError.of_memory(question.limits.memory) from None
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        discard(question)
        if is_full(error):
            raise NoSpaceError from None
        where = "".join(traceback.format_tb(error.__traceback__)) + type(error).__name__
        said = "the query cannot be run as it is written; write it in a simpler way"
        if question.trusted:
            said = "the server failed; what happened is in its log"
        raise UnexpectedError(said, where) from None


def small_answer(warehouse: Warehouse, asked: RowsRequest) -> ReadResult | None:
    """The answer where it takes moments, else None; errors as `answer`, for a thread of a server.

    Only for requests that hold no text of a client's.
    """
    from streamhouse.serve.queries import view_rows

    try:
        found = view_rows.small_answer(warehouse, asked)
    except BaseException as error:
        discard(asked)
        if is_full(error):
            raise NoSpaceError from None
        raise
    if found is None:
        discard(asked)
    return found


def _answer(warehouse: Warehouse, question: ReadRequest) -> ReadResult:
    # Here, since what they import is slow to load and not needed for the server's start.
    if isinstance(question, RowsRequest):
        from streamhouse.serve.queries import view_rows

        return view_rows.answer(warehouse, question)
    from streamhouse.serve.queries import client_select

    return client_select.answer(warehouse, question)


def discard(question: ReadRequest) -> None:
    """Remove what an answer to the question has written."""
    with contextlib.suppress(OSError):
        os.unlink(question.target.path)
