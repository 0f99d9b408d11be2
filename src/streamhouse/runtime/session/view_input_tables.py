"""The tables through which a view reads sources that are no Paimon tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from streamhouse.errors import TableError, UnsupportedSqlError
from streamhouse.sql.plan import CURRENT, AsOf, Name, ResolverAround, TableInfo
from streamhouse.sql.statements.watermark import IDLE_OPTION, by_split
from streamhouse.sql.syntax import Insert, Query, TextPosition
from streamhouse.sql.text import ticked

if TYPE_CHECKING:
    from streamhouse.runtime.session.session import Session


class ViewInputTables(ResolverAround):
    """Resolves names for a view: a table of a source stands for `<view>__in_<name>`.

    A continuous INSERT (`create`) fills that table, so that the view can read the source as of any
    snapshot.
    """

    def __init__(self, session: Session, view: Name) -> None:
        super().__init__(session)
        self._session, self.owner = session, view
        self._inputs: dict[Name, TableInfo] = {}
        """The input table of each source, by the source's name."""

    def create(self, position: TextPosition) -> tuple[Insert, ...]:
        """Create the input tables of all sources; returns the statements that fill them."""
        return tuple(self._feed(name, table, position) for name, table in self._inputs.items())

    def stored_name(self, name: Name) -> Name:
        """The name that the stored definition has for a name of the query.

        Without the view's own catalog, which may have another name in another script.
        """
        full = self._session.full(name)
        if self._session.is_temporary(full):
            full = self.table(name).name
        return full[1:] if full[0] == self.owner[0] else full

    def table(self, name: Name, as_of: AsOf = CURRENT) -> TableInfo:
        info = self._session.table(name, as_of)
        if info.connector == "paimon":
            return info
        if info.name not in self._inputs:
            self._inputs[info.name] = self._input(info)
        return self._inputs[info.name]

    def _input(self, source: TableInfo) -> TableInfo:
        catalog, database, view = self.owner
        if not source.capabilities.stream:
            raise UnsupportedSqlError(
                f"view {database}.{view}: {source.name[-1]} is a {source.connector} table, whose "
                "changes cannot be followed; INSERT its rows INTO a Paimon table, and read that one"
            )
        if source.changelog and not source.primary_key:
            raise TableError(
                f"view {database}.{view}: the rows of {source.name[-1]} change, so a view needs a "
                "key to keep them; declare it with PRIMARY KEY (…) NOT ENFORCED"
            )
        columns = tuple(replace(c, metadata=None, virtual=False) for c in source.columns)
        if source.capabilities.upserts:  # A delete has only the key.
            key = source.primary_key
            columns = tuple(replace(c, nullable=c.name not in key) for c in columns)
        options = {"bucket": "1"} if source.primary_key else {}
        if source.watermark is not None and source.watermark.idle_timeout:
            options[IDLE_OPTION] = source.watermark.idle_timeout
        return TableInfo(
            (catalog, database, f"{view}__in_{source.name[-1]}"), columns, source.computed,
            source.primary_key, (), options, watermark=by_split(source),
        )  # fmt: skip

    def _feed(self, source: Name, table: TableInfo, position: TextPosition) -> Insert:
        self._session.tables.keep(table)
        listed = ", ".join(ticked(column.name) for column in table.columns)
        text = f"SELECT {listed} FROM {'.'.join(map(ticked, source))}"
        return Insert(position, text, table.name, (), Query(text, TextPosition(1, 1)))
