"""The relays of a pipeline: one per MySQL server, for all tables that its queries follow.

docs/decisions/042-one-binlog-reader.md says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from operator import attrgetter

from streamhouse.connectors.base import SharingSource
from streamhouse.connectors.mysql_cdc.binlog.binlog_inspector import BinlogInspector
from streamhouse.connectors.mysql_cdc.binlog.limits import earliest_position
from streamhouse.connectors.mysql_cdc.binlog.startup import position_on_other_server
from streamhouse.connectors.mysql_cdc.json_records import from_json
from streamhouse.connectors.mysql_cdc.relay.relay import FOLDER, Relay, own_folder
from streamhouse.mysql.connection import Session, start_session
from streamhouse.mysql.metadata import TableNames
from streamhouse.mysql.options import MySqlOptions, parse
from streamhouse.mysql.position import BinlogPosition, BinlogState, position_of
from streamhouse.mysql.table import check_server
from streamhouse.source import Offset

_LOGIN = attrgetter("hostname", "port", "username", "password", "tls", "server_ids")
"""What the options of two sources share that can read by one connection."""


@dataclass(frozen=True)
class _Resumed:
    """Where a source goes on at the start, whose last offset may be of another server."""

    source: SharingSource
    offset: Offset
    position: BinlogPosition | None
    gtids: str | None = None

    def now(self) -> BinlogPosition | None:
        """The position of the source now."""
        last = self.source.last_offset
        return self.position if last == self.offset else position_of(last)


class Relays:
    """Starts the relays of a pipeline, limits the size of their logs, and raises their errors.

    `tables_of`: finds the tables that a source reads, by its options and last offset.
    """

    def __init__(self, tables_of: Callable[[MySqlOptions, Offset], Sequence[TableNames]]) -> None:
        self._tables_of = tables_of
        self._running: list[tuple[Relay, Sequence[_Resumed]]] = []

    def start(self, sources: Sequence[SharingSource]) -> None:
        """Start a relay for each MySQL server of `sources`, and let the sources use it."""
        groups: dict[tuple[object, ...], list[tuple[SharingSource, MySqlOptions]]] = {}
        for source in sources:
            assert source.source_spec is not None
            options = parse(source.source_spec.options)
            if options.relay_bytes and options.startup_mode != "snapshot":
                groups.setdefault(_LOGIN(options), []).append((source, options))
        for group in groups.values():
            self.start_relay([source for source, _ in group], [options for _, options in group])

    def step(self) -> None:
        """Raise the error of a relay, if any; let relays drop events that no query needs."""
        for relay, resumed in self._running:
            relay.check()
            positions = [one.now() for one in resumed]
            known = [position for position in positions if position is not None]
            relay.needed_from(min(known) if len(known) == len(positions) else None)

    def close(self) -> None:
        """Stop all relays and remove their logs."""
        relays, self._running = self._running, []
        for relay, _ in relays:
            relay.close()

    def follow(self, tables: Sequence[TableNames]) -> None:
        """Keep the changes of more tables, too, in events that arrive after this call."""
        for relay, _ in self._running:
            relay.follow(tables)

    def start_relay(
        self, sources: Sequence[SharingSource], options: Sequence[MySqlOptions]
    ) -> None:
        """Start the relay of sources with these options, which name one server."""
        # One connection waits for the server; all others follow once it has succeeded.
        with closing(
            start_session(options[0], all(source.last_offset for source in sources))
        ) as session:
            resumed = _resumed(session, sources, options)
        tables = {
            table: None
            for source, given in zip(sources, options, strict=True)
            for table in self._tables_of(given, source.last_offset)
        }
        known = [one.position for one in resumed if one.position is not None]
        max_bytes = max(of_source.relay_bytes for of_source in options)
        all_known = len(known) == len(resumed)
        gtids = {one.position: one.gtids for one in resumed if one.position and one.gtids}
        folder, held = own_folder(sources[0].checkpoint_path.parent / FOLDER)
        relay = Relay(
            options[0],
            list(tables),
            folder,
            known,
            max_bytes,
            all_known=all_known,
            gtids=gtids,
            held=held,
        )
        self._running.append((relay, resumed))
        relay.start()
        for source in sources:
            source.use_shared(folder)


def _resumed(
    session: Session, sources: Sequence[SharingSource], options: Sequence[MySqlOptions]
) -> list[_Resumed]:
    """Where the sources resume or begin."""
    binlog = BinlogInspector(session, options[0], check_server(session, options[0]))
    found = []
    for source, own in zip(sources, options, strict=True):
        last = source.last_offset
        position, state = _startup_position(last, own), from_json(BinlogState, last)
        moved = position_on_other_server(binlog, state, own.name)
        if moved is not None:
            position, state = moved
        found.append(_Resumed(source, last, position, state.gtids))
    return found


def _startup_position(offset: Offset, options: MySqlOptions) -> BinlogPosition | None:
    """Where a source resumes or begins; None if that is not known yet."""
    if offset:
        return position_of(offset)
    searched = options.startup_gtids is not None or options.skip_events or options.skip_rows
    if options.startup_mode == "specific-offset" and not searched:
        return options.startup_position
    if options.startup_mode == "earliest-offset":
        with closing(Session(options)) as session:
            return earliest_position(session)
    return None
