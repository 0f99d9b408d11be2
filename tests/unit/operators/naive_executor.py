"""Runs the delta forms of a tree in DuckDB, with nothing kept: looked-up rows are computed again.

So it tells whether the rows that an operator says it looks up are enough, and its state is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from streamhouse.operators.operator import (
    INPUT,
    RESULT,
    WEIGHT,
    Change,
    Operator,
    before,
    same_keys,
    walk,
)  # fmt: skip
from streamhouse.operators.scan import Scan
from streamhouse.operators.trees.arrangement import net
from streamhouse.sql.expressions.binder import quote

if TYPE_CHECKING:
    import duckdb


class NaiveExecutor:
    """The results of a tree's operators before and after a change of its tables.

    `old` and `changes` name the relations of the scans' old rows and of their changes.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        root: Operator,
        old: Mapping[str, str],
        changes: Mapping[str, str],
    ) -> None:
        self._connection = connection
        self._before, self._changes = old, changes
        self._names = {id(each): f"{n}" for n, each in enumerate(walk(root))}
        for each in walk(root):
            self._compute(each)

    def name(self, operator: Operator, kind: str) -> str:
        """The relation of an operator: its `old` or `new` rows, or the `delta` between them."""
        return f"{kind}_{self._names[id(operator)]}"

    def _create(self, name: str, sql: str) -> str:
        self._connection.execute(f"CREATE TEMP TABLE {name} AS {sql}")
        return name

    def _compute(self, operator: Operator) -> None:
        if isinstance(operator, Scan):
            inputs = [quote(self._before[operator.relation])]
            delta = operator.delta([Change(quote(self._changes[operator.relation]))])
        else:
            inputs = [self.name(each, "old") for each in operator.inputs]
            delta = ""
        old = self._create(self.name(operator, "old"), before(operator.whole(inputs)))
        delta = net(operator, f"({delta or self._delta(operator)})")
        delta = self._create(self.name(operator, "delta"), delta)
        self._create(self.name(operator, "new"), added(operator, old, delta))

    def _delta(self, operator: Operator) -> str:
        changes = [Change(self.name(each, "delta")) for each in operator.inputs]
        found: list[str] = []
        relations: dict[int, str] = {}
        looked_up: dict[int, Change] = {}
        for number, kept in enumerate(operator.keeps):
            own = kept.input == RESULT
            alias = INPUT if own else operator.aliases[kept.input]
            source = operator if own else operator.inputs[kept.input]
            keys = self._create(
                self.name(operator, f"keys{number}"), operator.lookups(number, changes, found)
            )
            rows = f"SELECT {alias}.* FROM {self.name(source, 'old')} AS {alias} WHERE EXISTS "
            rows += f"(SELECT 1 FROM {keys} AS _t WHERE {same_keys(kept.by, '_t') or 'true'})"
            found.append(self._create(self.name(operator, f"found{number}"), rows))
            relations[kept.input] = found[-1]
            if not own:
                rows = added(source, found[-1], changes[kept.input].delta)
                if kept.rare:
                    same = same_keys(kept.by, "_t") or "true"
                    rows = f"SELECT {alias}.* FROM ({rows}) AS {alias} WHERE EXISTS "
                    rows += f"(SELECT 1 FROM {keys} AS _t WHERE {same})"
                new = self._create(self.name(operator, f"input{kept.input}"), rows)
                old, new = (
                    f"(SELECT *, 1 AS {WEIGHT} FROM {each})" if kept.weighted else each
                    for each in (found[-1], new)
                )
                looked_up[kept.input] = Change(changes[kept.input].delta, old, new, keys)
        changes = [looked_up.get(n, change) for n, change in enumerate(changes)]
        return operator.delta(changes, relations.get(RESULT, ""))


def added(operator: Operator, old: str, delta: str) -> str:
    """The SQL of an operator's old rows and a change of them; rows that are not there are left."""
    columns = ", ".join(map(quote, operator.columns))
    return (
        f"SELECT {columns} FROM (SELECT {columns}, CAST(sum({WEIGHT}) AS BIGINT) AS _n FROM (SELECT"
        f" {columns}, 1 AS {WEIGHT} FROM {old} UNION ALL SELECT {columns}, {WEIGHT} FROM {delta}) "
        f"GROUP BY {columns}), range(greatest(_n, 0))"
    )


def negative(operator: Operator, old: str, delta: str) -> str:
    """The SQL of the rows of which a change takes away more than there are."""
    columns = ", ".join(map(quote, operator.columns))
    return (
        f"SELECT {columns} FROM (SELECT {columns}, 1 AS {WEIGHT} FROM {old} UNION ALL "
        f"SELECT {columns}, {WEIGHT} FROM {delta}) GROUP BY {columns} HAVING sum({WEIGHT}) < 0"
    )
