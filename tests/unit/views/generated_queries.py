"""Random SELECTs over the tables of `view_session`."""

from __future__ import annotations

import random

_COLUMNS = {
    "orders": {"id": "n", "customer_id": "n", "amount": "n", "price": "d", "product": "s"},
    "customers": {"id": "n", "name": "s", "country": "s"},
    "visits": {"customer_id": "n", "page": "s", "seconds": "n"},
}
_JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
_AGGREGATES = ("COUNT(*)", "COUNT({n})", "SUM({d})", "AVG({d})", "MIN({s})", "MAX({n})",
               "COUNT(DISTINCT {s})", "SUM({d}) FILTER (WHERE {n} > 1)")  # fmt: skip


class Generator:
    """Generates one query."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def query(self) -> str:
        """A SELECT with unique column names."""
        kind = self._random.choice(("plain", "group", "group", "set", "nested", "rank", "cte"))
        match kind:
            case "plain":
                return self._plain()
            case "group":
                return self._grouped()
            case "set":
                word = self._random.choice(("UNION", "UNION ALL", "INTERSECT", "EXCEPT"))
                return f"{self._one_column()} {word} {self._one_column()}"
            case "nested":
                function = self._random.choice(("SUM", "MAX", "COUNT", "MIN"))
                return f"SELECT g0, {function}(a0) AS most FROM ({self._grouped()}) GROUP BY g0"
            case "rank":
                function = self._random.choice(("RANK", "DENSE_RANK"))
                return (
                    f"SELECT * FROM (SELECT id, product, {function}() OVER (PARTITION BY product "
                    "ORDER BY price DESC) AS r FROM orders) "
                    f"WHERE r <= {self._random.randint(1, 2)}"
                )
            case _:
                join = self._random.choice(_JOINS)
                return (
                    f"WITH w AS ({self._grouped()}) SELECT w.*, c.id AS c FROM w "
                    f"{join} customers c ON w.a0 = c.id"
                )

    def _from(self) -> tuple[str, dict[str, list[str]]]:
        """FROM with one to three tables, and the columns by type."""
        names = self._random.choices(list(_COLUMNS), k=self._random.choice((1, 1, 2, 2, 3)))
        columns: dict[str, list[str]] = {"n": [], "d": [], "s": []}
        text = ""
        for number, name in enumerate(names):
            alias = f"t{number}"
            own = _COLUMNS[name]
            if not number:
                text = f"FROM {name} {alias}"
            else:
                other = self._random.choice(columns["n"])
                mine = f"{alias}.{self._random.choice([c for c, k in own.items() if k == 'n'])}"
                more = f" AND {mine} > 1" if self._random.random() < 0.2 else ""
                text += f" {self._random.choice(_JOINS)} {name} {alias} ON {other} = {mine}{more}"
            for column, kind in own.items():
                columns[kind].append(f"{alias}.{column}")
                if kind == "n" and column != "amount":
                    columns["d"].append(f"{alias}.{column}")
        return text, columns

    def _where(self, columns: dict[str, list[str]]) -> str:
        n = self._random.choice(columns["n"])
        choices = (
            "", "", f" WHERE {n} > 1", f" WHERE {n} IS NULL", f" WHERE {n} <> 2",
            f" WHERE {n} IN (SELECT customer_id FROM visits)",
            f" WHERE EXISTS (SELECT 1 FROM customers x WHERE x.id = {n})",
            f" WHERE {n} > (SELECT AVG(seconds) FROM visits)",
        )  # fmt: skip
        return self._random.choice(choices)

    def _plain(self) -> str:
        source, columns = self._from()
        every = [column for group in columns.values() for column in group]
        chosen = self._random.choices(every, k=self._random.randint(1, 4))
        items = ", ".join(f"{column} AS c{i}" for i, column in enumerate(chosen))
        distinct = "DISTINCT " if self._random.random() < 0.3 else ""
        return f"SELECT {distinct}{items} {source}{self._where(columns)}"

    def _grouped(self) -> str:
        source, columns = self._from()
        by = self._random.choice(columns["s"])
        counted = self._random.choice(("COUNT(*)", "MAX({n})")).format(**self._pick(columns))
        more = "".join(
            f", {self._random.choice(_AGGREGATES).format(**self._pick(columns))} AS a{number}"
            for number in range(1, self._random.randint(1, 4))
        )
        having = " HAVING COUNT(*) > 1" if self._random.random() < 0.3 else ""
        return (
            f"SELECT {by} AS g0, {counted} AS a0{more} {source}{self._where(columns)} "
            f"GROUP BY {by}{having}"
        )

    def _one_column(self) -> str:
        source, columns = self._from()
        return f"SELECT {self._random.choice(columns['n'])} AS c {source}{self._where(columns)}"

    def _pick(self, columns: dict[str, list[str]]) -> dict[str, str]:
        return {kind: self._random.choice(names) for kind, names in columns.items()}
