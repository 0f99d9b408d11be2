"""Random statements about a followed table and its neighbours, in random layout."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

COLUMNS = ("id", "v", "s", "e", "d", "g")
CREATE = (
    "CREATE TABLE {name} (id INT PRIMARY KEY, v INT, s VARCHAR(20), e ENUM('a','b','t') NOT NULL, "
    "d DECIMAL(6,2), g BINARY(2), KEY t (v)) CHARACTER SET utf8mb4 "
    "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), "
    "PARTITION t VALUES LESS THAN (1000))"
)
PLAIN = (
    "CREATE TABLE {name} (id INT PRIMARY KEY, v INT, s VARCHAR(20), e ENUM('a','b','t') NOT NULL, "
    "d DECIMAL(6,2), g BINARY(2), KEY t (v)) CHARACTER SET utf8mb4"
)
ROWS = (
    "INSERT INTO {name} VALUES ({n}1, 300, 'abc  ', 'a', 1.25, 'x'), (2, NULL, NULL, 'b', 12.5, "
    "'yy'), (2{n}3, -70000, 'tää', 't', -3.33, NULL)"
)
_TYPES = (
    "INT", "BIGINT", "SMALLINT", "INT UNSIGNED", "VARCHAR(3)", "VARCHAR(40)", "CHAR(30)", "TEXT",
    "TINYTEXT", "VARCHAR(20) CHARACTER SET latin1", "VARCHAR(20) CHARACTER SET ascii",
    "DECIMAL(6,2)", "DECIMAL(10,4)", "DECIMAL(8,1)", "DOUBLE", "FLOAT", "BINARY(2)", "BINARY(4)",
    "VARBINARY(9)", "ENUM('a','b','t')", "ENUM('b','a','t','z')", "ENUM('a','t')",
    "SET('a','b','t')", "DATETIME", "BOOLEAN", "INTEGER(9) ZEROFILL", "NUMERIC(12, 3)",
    "DOUBLE PRECISION", "LONGTEXT COLLATE utf8mb4_bin", "CHARACTER VARYING(50)", "DATE", "BIT(3)",
)  # fmt: skip
_ATTRIBUTES = (
    "", "", "", " NOT NULL", " NULL", " DEFAULT NULL", " DEFAULT '1'", " COMMENT 't, `t`; DROP'",
    " NOT NULL DEFAULT '7'", " UNIQUE", " CHECK (1 = 1)", " DEFAULT (1 + 1)", " INVISIBLE",
    " GENERATED ALWAYS AS (1) STORED",
)  # fmt: skip
Random = random.Random


class Grammar:
    """Statements in which `t` is the followed table; `other` is another database."""

    def __init__(self, chance: Random, database: str, other: str) -> None:
        self._chance = chance
        self._database, self._other = database, other

    def statement(self) -> str:
        """A statement; most are about `t`, `u`, `T` here or `t` in the other database."""
        tokens = self._chance.choice(_KINDS)(self)
        return self._layout(tokens)

    def _layout(self, tokens: str) -> str:
        """The tokens, which `§` separates, with blanks, comments and letters of any case."""
        chance = self._chance
        words = tokens.split("§")
        text = chance.choice(("", "", " ", "/* DROP TABLE t */", "-- t\n", "#`t\n", "\t\n"))
        closing = False
        for word in words:
            bare = word.isalpha() and word.isupper() and len(word) > 1
            if bare and chance.random() < 0.3:
                word = word.lower() if chance.random() < 0.5 else word.title()
            if bare and not closing and chance.random() < 0.04:
                text += chance.choice(("/*!", "/*!50000 ", "/*M!100000 "))
                closing = True
            text += word
            if closing and chance.random() < 0.5:
                text += " */"
                closing = False
            text += chance.choice(
                (
                    " ",
                    " ",
                    " ",
                    "  ",
                    "\n",
                    "/**/",
                    " /* t */ ",
                    " -- u\n",
                    " #\n",
                    " /*!99999 t */ ",
                )
            )
        return text + (" */" if closing else "")

    def table(self, *names: str) -> str:
        chance = self._chance
        name = chance.choice(names or ("t", "t", "t", "u", "T"))
        quoted = chance.choice((name, f"`{name}`"))
        if chance.random() < 0.6:
            return quoted
        database = chance.choice((self._database, self._other))
        dot = chance.choice((".", "§.§", "§.", ".§"))
        return chance.choice((database, f"`{database}`")) + dot + quoted

    def column(self) -> str:
        name = self._chance.choice(COLUMNS[1:])
        return self._chance.choice((name, f"`{name}`", name.upper()))

    def definition(self) -> str:
        chance = self._chance
        text = chance.choice(_TYPES) + chance.choice(_ATTRIBUTES)
        return text + chance.choice(("", "", "", "§FIRST", f"§AFTER§{self.column()}"))

    def spec(self) -> str:
        choice = self._chance.choice
        return choice(_SPECS)(self)

    def alter(self) -> str:
        chance = self._chance
        ignore = chance.choice(("", "", "", "", "IGNORE§"))
        specs = "§,§".join(self.spec() for _ in range(chance.choice((1, 1, 1, 2, 3))))
        exists = chance.choice(("", "", "IF§EXISTS§"))
        return f"ALTER§{ignore}TABLE§{exists}{self.table()}§{specs}"

    def rename(self) -> str:
        names = self._chance.sample(["t", "u", "T", "w", "x"], 3)
        a, b, c = names
        return self._chance.choice(
            (
                f"RENAME§TABLE§{a}§TO§x9",
                f"RENAME§TABLE§{a}§TO§x9§,§{b}§TO§{a}§,§x9§TO§{b}",
                f"RENAME§TABLE§{a}§TO§x9§,§x9§TO§{a}",
                f"RENAME§TABLE§{a}§TO§{self._other}.x9",
                f"RENAME§TABLES§IF§EXISTS§{a}§TO§x8§,§{c}§TO§x9",
            )
        )

    def create(self) -> str:
        chance = self._chance
        replace = chance.choice(("", "", "OR§REPLACE§"))
        temporary = chance.choice(("", "", "TEMPORARY§"))
        exists = "" if replace else chance.choice(("", "IF§NOT§EXISTS§"))
        table = self.table("t", "u", "T", "n")
        rest = chance.choice(
            ("(t INT)", "LIKE§t", "LIKE§u", "AS§SELECT§*§FROM§t", "(a INT, t INT)§SELECT§1 AS a")
        )
        return f"CREATE§{replace}{temporary}TABLE§{exists}{table}§{rest}"


def _spec(text: str) -> Callable[[Grammar], str]:
    def make(grammar: Grammar) -> str:
        filled = text.replace("{c}", grammar.column()).replace("{k}", grammar.column())
        return filled.replace("{def}", grammar.definition()).replace("{t}", grammar.table("n", "u"))

    return make


_SPECS: Sequence[Callable[[Grammar], str]] = [
    *[_spec("MODIFY§COLUMN§{c}§{def}"), _spec("MODIFY§{c}§{def}")] * 3,
    *[_spec("ADD§COLUMN§n1§{def}"), _spec("ADD§`t`§{def}"), _spec("ADD§(n2 {def}, n3 INT)")] * 2,
    *map(
        _spec,
        (
            "ADD§COLUMN§IF§NOT§EXISTS§{c}§INT", "DROP§COLUMN§{c}", "DROP§{c}",
            "DROP§COLUMN§IF§EXISTS§nope", "DROP§{c}§,§ADD§{k}§{def}", "CHANGE§{c}§{k}§{def}",
            "CHANGE§{c}§n4§{def}", "CHANGE§COLUMN§v§v§{def}", "RENAME§COLUMN§{c}§TO§n5",
            "RENAME§COLUMN§v§TO§d§,§RENAME§COLUMN§d§TO§v", "RENAME§INDEX§t§TO§`u`",
            "RENAME§KEY§t§TO§t2", "RENAME§TO§{t}", "RENAME§{t}", "RENAME§AS§{t}",
            "ADD§INDEX§x1§({c})", "ADD§UNIQUE§`t3`§({c})", "DROP§INDEX§t", "DROP§KEY§IF§EXISTS§t",
            "DROP§PRIMARY§KEY", "DROP§PRIMARY§KEY§,§ADD§PRIMARY§KEY§(id)",
            "DROP§PRIMARY§KEY§,§ADD§PRIMARY§KEY§(id, {c})", "DROP§INDEX§`PRIMARY`",
            "ADD§CONSTRAINT§t§CHECK§(v < 1000)", "ALTER§COLUMN§{c}§SET§DEFAULT§'1'",
            "ALTER§{c}§DROP§DEFAULT", "CONVERT§TO§CHARACTER§SET§latin1",
            "CONVERT§TO§CHARACTER§SET§utf8mb4", "CONVERT§TO§CHARSET§utf32",
            "DEFAULT§CHARACTER§SET§=§latin1", "CHARSET§latin1§COLLATE§latin1_bin",
            "ENGINE§=§InnoDB", "ENGINE=MyISAM", "COMMENT§=§'RENAME TO t'", "FORCE",
            "ORDER§BY§v§,§d§DESC", "AUTO_INCREMENT=900", "ROW_FORMAT=DYNAMIC", "DISABLE§KEYS",
            "TRUNCATE§PARTITION§p0", "TRUNCATE§PARTITION§t", "DROP§PARTITION§p0",
            "COALESCE§PARTITION§1", "REMOVE§PARTITIONING", "REBUILD§PARTITION§ALL",
            "REORGANIZE§PARTITION§p0§INTO§(PARTITION p1 VALUES LESS THAN (5), "
            "PARTITION p0 VALUES LESS THAN (10))",
            "ADD§PARTITION§(PARTITION p9 VALUES LESS THAN (5000))",
            "EXCHANGE§PARTITION§p0§WITH§TABLE§u", "CONVERT§PARTITION§p0§TO§TABLE§n6",
            "PARTITION§BY§KEY§()§PARTITIONS§2", "ADD§SYSTEM§VERSIONING",
            "DISCARD§TABLESPACE", "ALGORITHM=COPY", "LOCK=SHARED",
        ),
    ),
]  # fmt: skip


def _whole(text: str) -> Callable[[Grammar], str]:
    def make(grammar: Grammar) -> str:
        return text.replace("{t}", grammar.table()).replace("{u}", grammar.table("u", "T"))

    return make


_KINDS: Sequence[Callable[[Grammar], str]] = [
    *[Grammar.alter] * 14,
    *[Grammar.rename] * 2,
    *[Grammar.create] * 3,
    *map(
        _whole,
        (
            "DROP§TABLE§{t}", "DROP§TABLES§IF§EXISTS§{t}§,§nope", "DROP§TABLE§IF§EXISTS§nope§,§{u}",
            "DROP§TEMPORARY§TABLE§IF§EXISTS§{t}", "TRUNCATE§{t}", "TRUNCATE§TABLE§{t}",
            "DROP§VIEW§IF§EXISTS§{t}", "DROP§SEQUENCE§IF§EXISTS§{t}",
            "CREATE§OR§REPLACE§SEQUENCE§{t}", "CREATE§OR§REPLACE§VIEW§view_t§AS§SELECT§*§FROM§{t}",
            "CREATE§INDEX§t8§ON§{t}§(v)", "CREATE§UNIQUE§INDEX§IF§NOT§EXISTS§t9§ON§{t}§(v)",
            "DROP§INDEX§t§ON§{t}", "DROP§INDEX§`PRIMARY`§ON§{t}", "OPTIMIZE§TABLE§{t}",
            "ANALYZE§TABLE§{t}", "SET§STATEMENT§max_statement_time=9§FOR§TRUNCATE§{t}",
            "SET§STATEMENT§max_statement_time=9§FOR§ALTER§TABLE§{t}§DROP§COLUMN§v",
            "CREATE§OR§REPLACE§PROCEDURE§p1()§BEGIN TRUNCATE t; DROP TABLE t; END",
            "CREATE§OR§REPLACE§TRIGGER§g1§BEFORE§INSERT§ON§{t}§FOR§EACH§ROW§SET NEW.v = 1",
            "INSERT§INTO§{t}§(id, e)§VALUES§(900, 't')", "DELETE§FROM§{t}§WHERE§id§=§2",
            "CREATE§OR§REPLACE§DATABASE§zz§COMMENT§'t'", "GRANT§SELECT§ON§{t}§TO§streamhouse",
        ),
    ),
]  # fmt: skip
