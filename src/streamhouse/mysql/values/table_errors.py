"""Adds the name of the MySQL table to errors about a value or a column."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from streamhouse.errors import TableError

_T = TypeVar("_T")


@contextmanager
def errors_of(table: str) -> Iterator[None]:
    """Prefix a `TableError` with the name of the table, unless it has it."""
    try:
        yield
    except TableError as error:
        if type(error) is not TableError or table in str(error):
            raise
        raise TableError(f"MySQL table {table}: {error}") from None


def naming(table: str, batches: Iterable[_T]) -> Iterator[_T]:
    """Yield the batches; errors while reading them name the table."""
    with errors_of(table):
        yield from batches
