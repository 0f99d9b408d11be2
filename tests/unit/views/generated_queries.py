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


def queries_of(seed: int, count: int) -> dict[str, str]:
    """Queries of as many views, by the views' names."""
    return {f"v{n}": Generator(seed * count + n).query() for n in range(count)}


class Generator:
    """Generates one query."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def query(self) -> str:
        """A SELECT with unique column names."""
        kinds = ("plain", "group", "group", "set", "nested", "rank", "cte", "correlated", "over",
                 "row_in", "natural", "lateral", "list")  # fmt: skip
        kind = self._random.choice(kinds)
        match kind:
            case "plain":
                return self._plain()
            case "group":
                return self._grouped()
            case "set":
                word = self._random.choice(("UNION", "INTERSECT", "EXCEPT"))
                word += self._random.choice(("", " ALL"))
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
            case "correlated":
                function = self._random.choice(("MAX(o.price)", "COUNT(*)", "SUM(o.rate)"))
                test = self._random.choice(("=", "<", "IS NOT DISTINCT FROM"))
                return (
                    f"SELECT v.*, (SELECT {function} FROM orders o WHERE o.customer_id {test} "
                    "v.customer_id) AS a FROM visits v"
                )
            case "over":
                frame = self._random.choice(
                    (
                        "ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
                        "ORDER BY at_ RANGE BETWEEN INTERVAL '5' HOUR PRECEDING AND CURRENT ROW",
                        "ORDER BY amount",
                        "",
                    )
                )
                function = self._random.choice(("SUM(price)", "COUNT(amount)", "MAX(product)"))
                return (
                    f"SELECT id, {function} OVER (PARTITION BY product {frame}) AS w, RANK() OVER "
                    "(ORDER BY price) AS r FROM orders"
                )
            case "row_in":
                word = self._random.choice(("IN", "NOT IN"))
                where = self._random.choice(("", " WHERE v.seconds > o.amount"))
                return (
                    f"SELECT id, product FROM orders o WHERE (customer_id, product) {word} "
                    f"(SELECT customer_id, page FROM visits v{where})"
                )
            case "natural":
                side = self._random.choice(("", "LEFT ", "RIGHT ", "FULL "))
                return f"SELECT * FROM visits NATURAL {side}JOIN orders"
            case "lateral":
                return (
                    "SELECT c.id, t.price FROM customers c LEFT JOIN LATERAL (SELECT o.price FROM "
                    f"orders o WHERE o.customer_id = c.id ORDER BY o.id LIMIT "
                    f"{self._random.randint(1, 2)}) AS t ON TRUE"
                )
            case "list":
                return (
                    "SELECT customer_id, LISTAGG(product, '-') WITHIN GROUP (ORDER BY id) AS l, "
                    "SUM(rate) AS s, VAR_POP(rate) AS v FROM orders GROUP BY customer_id"
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
