"""Splits off the lookup joins of a SELECT that no streaming query computes as a whole.

A lookup join sees each row once, as of its time, so only a streaming query can compute it. A query
of the joined rows fills a table, and the rest of the SELECT reads that table, as a view does
(decision 267). Both are texts of the script's own, with the names of the columns replaced.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from sqlglot import exp

from streamhouse.errors import StreamhouseError
from streamhouse.sql.parser.dialect import PLACE
from streamhouse.sql.plan import Name, Resolver, TableInfo
from streamhouse.sql.resolution import columns as names
from streamhouse.sql.resolution import versions
from streamhouse.sql.resolution.view_expansion import inlined
from streamhouse.sql.secrets import edited
from streamhouse.sql.streaming.select_reader import read_selects
from streamhouse.sql.syntax import Query
from streamhouse.sql.text import Script, span, ticked

_ALIAS = "joined_rows"
KEPT = "\0"
"""Stands for the name of the table that keeps the rows."""
Span: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class JoinedRows:
    """Rows that a query reads, such as its lookup joins, as a `query` of their own.

    `whole` is the query, and `edits` are the ranges of its text that change if it reads these rows
    from a table, whose name takes the place of `KEPT`. `key` are the columns that have the key of
    the rows, if these change; `time` is the one that has a stored time in the table. `versions` is
    the table of which the rows are all versions, with a last column that says which were removed.
    """

    query: Query
    whole: Query
    edits: Mapping[Span, str]
    key: tuple[str, ...] = ()
    time: str = ""
    versions: TableInfo | None = None

    def rest(self, table: Name) -> Query:
        """The whole query, reading the rows from a table."""
        name, edits = ".".join(map(ticked, table)), sorted(self.edits.items())
        edited_parts = ((first, last, new.replace(KEPT, name)) for (first, last), new in edits)
        return replace(self.whole, text=edited(self.whole.text, edited_parts))


def joined_rows(query: Query, resolver: Resolver) -> JoinedRows | None:
    """The lookup joins of the first SELECT that has some; None if they cannot be split off.

    Raises `UnsupportedSqlError` if they could, but the SELECT hides the key of rows that change.
    """
    parsed = names.parse_query(query)
    for select in parsed.tree.find_all(exp.Select):
        joins = select.args.get("joins") or []
        lookups = itertools.takewhile(lambda join: _is_lookup(join, resolver), joins)
        count = len(list(lookups))
        if count:
            try:
                split = _Split(query, parsed.script, select, count, resolver)
            except StreamhouseError:
                # The error of the whole query says more.
                return None
            return split.split()
    return None


def _is_lookup(join: exp.Join, resolver: Resolver) -> bool:
    """Whether a join looks rows of a table up; views are joined as of stored times."""
    table = join.this
    if not isinstance(table, exp.Table) or table.args.get("version") is None:
        return False
    return versions.view_of(resolver, table) is None


class _Split:
    """Splits one SELECT after its first `count` joins, which are lookups.

    All offsets are those of the script. The joined rows come from its text between `_from` and
    `_end`, with a WHERE that can be applied to them alone; the joins end at `_joined`.
    """

    def __init__(
        self, query: Query, script: Script, select: exp.Select, count: int, resolver: Resolver
    ) -> None:
        self._query, self._script, self._select, self._resolver = query, script, select, resolver
        self._base = len(script.text) - len(query.text)
        joins, where = select.args["joins"], select.args.get("where")
        self._from: int = select.args["from_"].meta[PLACE][0]
        self._joined: int = joins[count - 1].meta[PLACE][1]
        self._end = self._joined
        if where is not None and len(joins) == count and where.find(exp.Query) is None:
            self._end = where.meta[PLACE][1]
        self._key: list[str] = []
        self._hidden: list[str] = []
        self._visible = dict(self._columns())
        self._used: set[tuple[str, str]] = {(next(iter(self._visible)), key) for key in self._key}

    def split(self) -> JoinedRows | None:
        if self._shadowed():
            return None
        if self._hidden:
            source = self._select.args["from_"].this
            raise self._script.unsupported(
                source,
                "the rows of the lookup join are kept by the key of the stream, since they change; "
                f"let '{source.alias_or_name}' have its column(s) {', '.join(self._hidden)}, too",
            )
        start, end = self._from, self._end
        edits = {**dict(self._edits()), (start, end): f"FROM {KEPT} AS {ticked(_ALIAS)} "}
        hint, hinted = self._select.args.get("hint"), ""
        if hint is not None:
            edits[place := (hint.meta["start"], hint.meta["end"] + 1)] = ""
            hinted = self._script.text[slice(*place)]
        listed = [
            f"{ticked(alias)}.{ticked(name)} AS {ticked(new)}"
            for alias, columns in self._visible.items()
            for name, new in columns.items()
            if (alias, name) in self._used
        ]
        alias, columns = next(iter(self._visible.items()))
        listed = listed or [f"{ticked(alias)}.{ticked(next(iter(columns)))}"]
        text = f"SELECT {hinted} {', '.join(listed)} {self._script.text[start:end]}"
        return JoinedRows(
            replace(self._query, text=self._with + text, prefix=""),
            self._query,
            {(a - self._base, b - self._base): new for (a, b), new in edits.items()},
            tuple(columns[name] for name in self._key),
        )

    @property
    def _with(self) -> str:
        """The WITH clause, whose queries the joins may read."""
        with_ = self._select.args.get("with_")
        return "" if with_ is None else f"{self._script.text[slice(*with_.meta[PLACE])]} "

    def _columns(self) -> Iterator[tuple[str, dict[str, str]]]:
        """The columns of each alias of the joins, with their names in the joined rows."""
        first = self._select.args["from_"].this.alias_or_name
        text = f"SELECT {ticked(first)}.* {self._script.text[self._from : self._joined]}"
        query = replace(self._query, text=self._with + text, prefix="")
        (read,) = read_selects(inlined(names.parse_query(query), self._resolver), self._resolver)
        if read.source.changelog:
            copies = {read.source_column(item): name for name, item in read.visible[first].items()}
            key = read.source.primary_key
            if not key:
                raise StreamhouseError("the rows that change have no key")
            self._key = [copies[name] for name in key if name in copies]
            self._hidden = [name for name in key if name not in copies]
        counts = Counter(name for columns in read.visible.values() for name in columns)
        taken = set(counts)
        for alias, columns in read.visible.items():
            renamed = {}
            for name in columns:
                new = name if counts[name] == 1 else f"{alias}_{name}"
                while new != name and new in taken:
                    new += "_"
                taken.add(new)
                renamed[name] = new
            yield alias, renamed

    def _shadowed(self) -> bool:
        """Whether a subquery gives one of the aliases to another table."""
        start, end = self._from, self._end
        return any(
            table.alias_or_name in self._visible
            for table in self._select.find_all(exp.Table, exp.Subquery)
            if not start <= (span(table) or (start, end))[0] < end
        )

    def _edits(self) -> Iterator[tuple[Span, str]]:
        """The texts of columns and stars that change; notes which columns are used."""
        start, end = self._from, self._end
        for column in self._select.find_all(exp.Column, exp.Star):
            place = span(column)
            star = isinstance(column if isinstance(column, exp.Star) else column.this, exp.Star)
            if place is None or start <= place[0] < end:
                continue
            alias = column.table if isinstance(column, exp.Column) else ""
            if star and isinstance(column.parent, exp.Column):
                continue
            if star and column.parent is self._select and (not alias or alias in self._visible):
                yield place, self._star([alias] if alias else list(self._visible))
            elif not star and not alias:
                owners = [each for each, found in self._visible.items() if column.name in found]
                self._used |= {(each, column.name) for each in owners}
            elif not star and column.name in self._visible.get(alias, {}):
                self._used.add((alias, column.name))
                yield place, self._text(alias, column.name, column.parent is self._select)

    def _star(self, aliases: Sequence[str]) -> str:
        columns = [(alias, name) for alias in aliases for name in self._visible[alias]]
        self._used.update(columns)
        return ", ".join(self._text(*column, True) for column in columns)

    def _text(self, alias: str, name: str, projected: bool) -> str:
        new = self._visible[alias][name]
        renamed = f" AS {ticked(name)}" if projected and new != name else ""
        return f"{ticked(_ALIAS)}.{ticked(new)}{renamed}"
