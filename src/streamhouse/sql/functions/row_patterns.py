"""Finds the matches of MATCH_RECOGNIZE: the function that DuckDB calls with the rows of partitions.

A pattern is a program of steps, which a thread follows and takes back when it fails, as a regular
expression does. So the match is the first one that the pattern prefers: a greedy quantifier takes
rows first, a reluctant one leaves them. Whether a row may be of a variable is known before, or
depends on the rows that were matched so far: then DuckDB evaluates the condition, for all
partitions at once.
"""

import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import duckdb
import numpy as np
import pyarrow as pa

from streamhouse.duckdb_database import open_database

FUNCTION = "flink_match_rows"
ALIAS, OWN = "_m", "match$"
"""The alias of the rows that are searched, and how the columns begin that are not their own."""
ROWS, REQUEST, PLACE, VARIABLE = "match$rows", "match$request", "match$place", "match$variable"
"""The relation over which conditions are evaluated, and its columns beside those of the rows."""
TIME, IS = "match$time", "match$is_"
"""The columns of rows with their times in microseconds, and with the conditions of variables."""
NUMBER, DECIDED = "number", "decided"
RESULT = f"STRUCT({NUMBER} INTEGER, place BIGINT, variable VARCHAR, {DECIDED} BIGINT)[]"
_RESULT = pa.list_(
    pa.struct({
        NUMBER: pa.int32(), "place": pa.int64(), "variable": pa.string(), DECIDED: pa.int64(),
    }.items())
)  # fmt: skip
Step: TypeAlias = tuple[Any, ...]
"""("row", variable), ("split", first, second): try both in this order, or ("jump", to): so many
steps on. After the last step there is a match."""
Path: TypeAlias = tuple[str, ...]
"""The variables of the rows of a match, from its first row on."""
_MOST_ROWS, _MOST_ANSWERS, _OFTEN = 50_000, 1_000_000, 8
"""How many rows conditions are evaluated over at once, how many answers are kept, and for how many
paths that are often asked for conditions are evaluated in advance."""
_Asked: TypeAlias = tuple[int, Path]
_Search: TypeAlias = Generator[_Asked, bool | None, Any]
"""Yields the first row of a match and the variables of its rows, and gets whether the condition of
the last one is true."""


@dataclass(frozen=True)
class Program:
    """A pattern: its `steps`, and after which row the next match may begin.

    `known` are the variables whose conditions are columns of the rows, `asked` those whose
    conditions are evaluated over `ROWS`; others may be any row. `skip`: `PAST` or `NEXT`, or
    `FIRST` or `LAST` of the `skip_to` variables. `within_us`: a match is shorter than that; 0: of
    any length. `ahead`: how many rows after a row its condition, or a measure, reads.
    """

    steps: Sequence[Step]
    skip: str = "PAST"
    skip_to: Sequence[str] = ()
    within_us: int = 0
    ahead: int = 0
    known: Sequence[str] = ()
    asked: Sequence[str] = ()

    def text(self) -> str:
        """The program as an argument of the function."""
        return json.dumps(asdict(self))


class Matches:
    """The function over Arrow: a program, lists of rows, and the SQL of each `asked` condition."""

    parameters = None
    result = RESULT

    def __init__(self, register: Callable[[duckdb.DuckDBPyConnection, str], None]) -> None:
        """`register`: registers the functions that conditions call."""
        self._register = register

    def __call__(self, *columns: pa.ChunkedArray) -> pa.Array:
        programs, rows, *texts = (column.combine_chunks() for column in columns)
        found: list[Any] = []
        if len(rows):
            program = Program(**json.loads(programs[0].as_py()))
            asked = dict(zip(program.asked, (text[0].as_py() for text in texts), strict=True))
            with contextlib.ExitStack() as stack:
                connection = None
                if asked:
                    # To open a database takes longer than most searches.
                    opened = contextlib.closing(open_database(threads=1, async_threads=0))
                    connection = stack.enter_context(opened)
                    self._register(connection, " ".join(asked.values()))
                found = _Partitions(program, asked, rows, connection).matches()
        return pa.array(found, _RESULT)


class _Partitions:
    """The rows of several partitions, each in order; `connection` evaluates what is `asked`."""

    def __init__(
        self,
        program: Program,
        asked: Mapping[str, str],
        rows: pa.ListArray,
        connection: duckdb.DuckDBPyConnection | None,
    ) -> None:
        self._program, self._asked, self._connection = program, asked, connection
        self._ends = rows.offsets.to_numpy() - rows.offsets[0].as_py()
        self._valid = rows.is_valid().to_pylist()
        table = pa.Table.from_struct_array(rows.flatten())
        self._known = {name: table.column(IS + name).to_pylist() for name in program.known}
        self._times = table.column(TIME).to_pylist() if program.within_us else []
        self._rows = table
        self._answers: dict[Path, dict[int, bool]] = defaultdict(dict)
        self._often: Counter[Path] = Counter()

    def matches(self) -> list[Any]:
        """For each partition its matched rows, by the number of the match.

        `decided` is the place of the last row on which the match depends, null if rows that follow
        the partition could change it.
        """
        searches = {
            at: self._search(int(self._ends[at]), int(self._ends[at + 1]))
            for at, valid in enumerate(self._valid)
            if valid
        }
        found: list[Any] = [None] * len(self._valid)
        waiting: dict[int, _Asked | None] = dict.fromkeys(searches)
        while waiting:
            asked: dict[int, _Asked] = {}
            for at, before in waiting.items():
                answer = None if before is None else self._answer(before)
                try:
                    while (answer := self._answer(key := searches[at].send(answer))) is not None:
                        pass
                    asked[at] = key
                except StopIteration as done:
                    found[at] = done.value
            if asked:
                self._ask(asked)
            waiting = dict(asked)
        return found

    def _answer(self, asked: _Asked) -> bool | None:
        start, path = asked
        return self._answers[path].get(start)

    def _ask(self, asked: Mapping[int, _Asked]) -> None:
        """Evaluate the conditions that partitions ask for, and some that are likely to be next.

        A query takes about as long for one as for a thousand of them.
        """
        if sum(map(len, self._answers.values())) > _MOST_ANSWERS:
            self._answers.clear()
        paths = Counter(path for _, path in asked.values())
        self._often.update(paths)
        likely = [path for path, _ in self._often.most_common(_OFTEN)]
        likely += [path + path[-1:] * more for path in paths for more in range(1, len(path) + 1)]
        most, size = _MOST_ROWS // len(asked), sum(map(len, paths))
        for path in likely:
            if path not in paths and size + len(path) <= most:
                paths[path] = 1
                size += len(path)
        later = max(1, most // size)
        ends = [(start, int(self._ends[at + 1])) for at, (start, _) in asked.items()]
        requests = {
            path: [
                place
                for start, end in ends
                for place in range(start, min(start + later, end - len(path) + 1))
                if place not in self._answers[path]
            ]
            for path in paths
        }
        try:
            self._evaluate(requests)
        except duckdb.Error:
            # One that is not needed may have failed.
            for start, path in asked.values():
                self._evaluate({path: [start]})

    def _evaluate(self, requests: Mapping[Path, Sequence[int]]) -> None:
        """Evaluate the conditions of paths that begin with certain rows."""
        assert self._connection is not None
        for variable in {path[-1] for path in requests}:
            keys, firsts, places, names = list[tuple[Path, int]](), [], [], []
            for path, starts in requests.items():
                if path[-1] == variable and starts:
                    keys += [(path, start) for start in starts]
                    firsts.append(np.repeat(starts, len(path)))
                    places.append(np.tile(np.arange(len(path)), len(starts)))
                    names.append(np.tile(np.array(path), len(starts)))
            if not keys:
                continue
            offsets = np.concatenate(places)
            numbers = np.repeat(np.arange(len(keys)), [len(path) for path, _ in keys])
            table = self._rows.take(pa.array(np.concatenate(firsts) + offsets))
            more = {
                REQUEST: pa.array(numbers, pa.int64()),
                PLACE: pa.array(offsets + 1, pa.int64()),
                VARIABLE: pa.array(np.concatenate(names), pa.string()),
            }
            for name, column in more.items():
                table = table.append_column(name, column)
            self._connection.register(ROWS, table)
            answers = self._connection.sql(self._asked[variable]).to_arrow_table()
            request, is_true = answers.column(0).combine_chunks().flatten()
            for n, answer in zip(request.to_pylist(), is_true.to_pylist(), strict=True):
                path, start = keys[n]
                self._answers[path][start] = bool(answer)

    def _search(self, first: int, end: int) -> _Search:
        """The matches in the rows from `first` up to `end`."""
        start, number, reached, found = first, 0, first, []
        while start < end:
            path, last = yield from self._match(start, end)
            reached = max(reached, last + self._program.ahead)
            if path is None:
                start += 1
                continue
            number += 1
            decided = reached - first + 1 if reached < end else None
            found += [
                {NUMBER: number, "place": start - first + n, "variable": name, DECIDED: decided}
                for n, name in enumerate(path, 1)
            ]
            start += self._skipped(path)
        return found

    def _match(self, start: int, end: int) -> _Search:
        """The variables of the match that begins with a row, None if there is none.

        And the last row that the search asked for.
        """
        path, last = list[str](), start
        threads: list[tuple[int, int, frozenset[int]]] = [(0, 0, frozenset())]
        while threads:
            step, length, passed = threads.pop()
            del path[length:]
            while step < len(self._program.steps):
                kind, *operands = self._program.steps[step]
                if kind == "jump":
                    step += operands[0]
                elif kind == "split":
                    # Without a row in between, a loop would go on for ever.
                    if step in passed:
                        break
                    passed |= {step}
                    threads.append((step + operands[1], len(path), passed))
                    step += operands[0]
                else:
                    last = max(last, start + len(path))
                    if not (yield from self._may_be(operands[0], start, end, path)):
                        break
                    path.append(operands[0])
                    step, passed = step + 1, frozenset()
            else:
                return tuple(path), last
        return None, last

    def _may_be(self, variable: str, start: int, end: int, path: list[str]) -> _Search:
        """Whether the next row may be of a variable."""
        row = start + len(path)
        if row >= end:
            return False
        if self._times:
            first, last = self._times[start], self._times[row]
            if None in (first, last) or abs(last - first) >= self._program.within_us:
                return False
        if variable in self._known:
            return self._known[variable][row]
        if variable not in self._asked:
            return True
        return (yield start, (*path, variable))

    def _skipped(self, path: Path) -> int:
        """How many rows after the start of a match the next one may begin."""
        if self._program.skip in ("PAST", "NEXT"):
            return len(path) if self._program.skip == "PAST" else 1
        places = [n for n, variable in enumerate(path) if variable in self._program.skip_to]
        if not places:
            names = ", ".join(self._program.skip_to)
            raise ValueError(f"AFTER MATCH SKIP TO {names}: a match has no row of it")
        place = places[0] if self._program.skip == "FIRST" else places[-1]
        if not place:
            raise ValueError("AFTER MATCH SKIP TO the first row of a match would find it again")
        return place
