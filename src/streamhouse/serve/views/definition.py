"""The SELECT that defines a served view, and its errors, which clients must not read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamhouse.errors import StreamhouseError, TableError
from streamhouse.serve.access_log import LOGGER
from streamhouse.serve.views.warehouse_tables import WarehouseTables
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.statements.create_view import ticked
from streamhouse.sql.syntax import Query, TextPosition

if TYPE_CHECKING:
    from streamhouse.paimon.catalog.warehouse import Warehouse
    from streamhouse.serve.views.served_view import ServedView


def definition(view: ServedView) -> str:
    """The SELECT of a served view: its columns and its filter over the source."""
    columns = "*" if view.columns is None else ", ".join(map(ticked, view.columns))
    database, table = view.source.split(".", 1)
    text = f"SELECT {columns} FROM {ticked(database)}.{ticked(table)}"
    # On a line of its own, so that a comment at its end does not hide the bracket.
    return text if view.filter is None else f"{text} WHERE (\n{view.filter}\n)"


@contextlib.contextmanager
def hide_definition_errors(warehouse: Warehouse, view: ServedView) -> Iterator[None]:
    """Replace an error that the view's own definition causes; its message may name hidden columns.

    Raises `TableError` without details then; they are in the server's log.
    """
    try:
        yield
    except StreamhouseError:
        error = _definition_error(warehouse, view)
        if error is None:
            raise
        LOGGER.warning("view '%s' cannot be read as it is defined: %s", view.name, error)
        raise TableError(
            f"view '{view.name}' cannot be read as it is defined in the server's file of views; "
            "the server's log has the details"
        ) from None


def _definition_error(warehouse: Warehouse, view: ServedView) -> StreamhouseError | None:
    if view.columns is None and view.filter is None:
        return None
    try:
        analyze_bounded(Query(definition(view), TextPosition(1, 1)), WarehouseTables(warehouse))
    except StreamhouseError as error:
        return error
    return None
