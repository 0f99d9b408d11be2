"""Tables are described as they are while an ALTER TABLE exchanges their files."""

from __future__ import annotations

import itertools
from contextlib import closing

from tests.integration.mysql.history import Database
from tests.integration.runtime.concurrent_steps import ConcurrentSteps

from streamhouse.connectors.mysql_cdc.database.discovery import Discovery, TableFilter
from streamhouse.mysql.connection import Session
from streamhouse.mysql.options import parse
from streamhouse.mysql.table import check_server, load_table

_TABLES = ("a", "b", "c")
_READINGS = 1500


class _Altering(ConcurrentSteps):
    def __init__(self, database: Database) -> None:
        super().__init__(0.0)
        self._database = database
        self._statements = itertools.cycle(
            f"ALTER TABLE {table} MODIFY v {kind}"
            for kind in ("BIGINT", "INT")
            for table in _TABLES
        )

    def step(self) -> None:
        self._database.run(next(self._statements))


def test_no_part_of_a_table_is_left_out(database: Database) -> None:
    for table in _TABLES:
        database.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT, parent INT)")
    database.run("ALTER TABLE b ADD FOREIGN KEY (parent) REFERENCES a (id) ON DELETE CASCADE")
    options = parse(database.options("a"))
    with closing(Session(options)) as session, _Altering(database):
        server, tables = check_server(session, options), TableFilter(database.name)
        discovery = Discovery.of_sync(session, server, options, tables)
        names = [(database.name, table) for table in _TABLES]
        for _ in range(_READINGS):
            found = discovery.described(names)
            assert [*found] == names
            definitions = [
                load_table(session, options),
                *(one.definition for one in found.values()),
            ]
            for definition in definitions:
                assert definition is not None and definition.key
                assert bool(definition.foreign_keys) is (definition.name == "b")
