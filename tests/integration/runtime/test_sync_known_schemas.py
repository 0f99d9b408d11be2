"""A sync of databases in the form of well-known samples, whose foreign keys cascade."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pymysql
import pytest
from tests.integration.mysql.schema_changes import KEPT, mysql_rows, paimon_rows, replayed
from tests.integration.runtime.test_sync import Sync, fresh
from tests.mysql_server import IS_MYSQL

from streamhouse.demo.mariadb import MariaDB

pytestmark = [
    pytest.mark.skipif(IS_MYSQL, reason="MySQL is refused, or logs these rows"),
    pytest.mark.soak,
]
_STAMP = "last_update TIMESTAMP NOT NULL DEFAULT '2020-01-01' ON UPDATE CURRENT_TIMESTAMP"


def _key(name: str, kind: str) -> str:
    return f"{name} {kind} UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY"


def _refers(column: str, table: str, delete: str = "RESTRICT", null: bool = False) -> str:
    kind = "TINYINT" if table in ("language", "category", "staff", "store") else "SMALLINT"
    key = "rental_id" if table == "rental" else f"{table}_id"
    kind = {"rental": "INT", "inventory": "MEDIUMINT"}.get(table, kind)
    return (
        f"{column} {kind} UNSIGNED {'NULL' if null else 'NOT NULL'}, FOREIGN KEY ({column}) "
        f"REFERENCES {table} ({key}) ON DELETE {delete} ON UPDATE CASCADE"
    )


# A rental shop: every key of a parent that changes changes its children, of every generation.
RENTALS = {
    "country": [_key("country_id", "SMALLINT"), "country VARCHAR(50) NOT NULL"],
    "city": [_key("city_id", "SMALLINT"), "city VARCHAR(50)", _refers("country_id", "country")],
    "address": [_key("address_id", "SMALLINT"), "address VARCHAR(50)", "phone VARCHAR(20)",
                "place POINT", _refers("city_id", "city")],
    "language": [_key("language_id", "TINYINT"), "name CHAR(20) NOT NULL"],
    "category": [_key("category_id", "TINYINT"), "name VARCHAR(25) NOT NULL"],
    "actor": [_key("actor_id", "SMALLINT"), "last_name VARCHAR(45), KEY (last_name)"],
    "film": [_key("film_id", "SMALLINT"), "title VARCHAR(128)", "release_year YEAR",
             "rental_rate DECIMAL(4, 2) NOT NULL DEFAULT 4.99",
             "rating ENUM('G', 'PG', 'R') DEFAULT 'G'",
             "special_features SET('Trailers', 'Commentaries', 'Deleted Scenes')",
             _refers("language_id", "language"),
             _refers("original_id", "language", null=True)],
    "film_actor": [_refers("actor_id", "actor"), _refers("film_id", "film"),
                   "PRIMARY KEY (actor_id, film_id)"],
    "film_category": [_refers("film_id", "film"), _refers("category_id", "category"),
                      "PRIMARY KEY (film_id, category_id)"],
    "film_text": ["film_id SMALLINT PRIMARY KEY", "title VARCHAR(255)", "description TEXT"],
    "staff": [_key("staff_id", "TINYINT"), "picture BLOB", "active BOOLEAN DEFAULT TRUE",
              _refers("address_id", "address"), "store_id TINYINT UNSIGNED"],
    "store": [_key("store_id", "TINYINT"), _refers("manager_id", "staff"),
              _refers("address_id", "address")],
    "customer": [_key("customer_id", "SMALLINT"), "email VARCHAR(50)", "create_date DATETIME",
                 _refers("store_id", "store"), _refers("address_id", "address")],
    "inventory": [_key("inventory_id", "MEDIUMINT"), _refers("film_id", "film"),
                  _refers("store_id", "store")],
    "rental": [_key("rental_id", "INT"), "rental_date DATETIME", "return_date DATETIME",
               _refers("inventory_id", "inventory"), _refers("customer_id", "customer"),
               _refers("staff_id", "staff")],
    "payment": [_key("payment_id", "SMALLINT"), "amount DECIMAL(5, 2)",
                _refers("customer_id", "customer"), _refers("staff_id", "staff"),
                _refers("rental_id", "rental", "SET NULL", null=True)],
}  # fmt: skip
_LATE = (
    "ALTER TABLE staff ADD FOREIGN KEY (store_id) REFERENCES store (store_id) "
    "ON DELETE RESTRICT ON UPDATE CASCADE"
)
_EMPLOYEE = "FOREIGN KEY (emp_no) REFERENCES employees (emp_no) ON DELETE CASCADE"
_DEPARTMENT = "FOREIGN KEY (dept_no) REFERENCES departments (dept_no) ON DELETE CASCADE"
# A personnel office: who leaves takes along what four tables have of them.
STAFF = {
    "employees": ["emp_no INT NOT NULL PRIMARY KEY", "birth_date DATE", "name VARCHAR(16)",
                  "gender ENUM('M', 'F') NOT NULL DEFAULT 'F'", "hire_date DATE"],
    "departments": ["dept_no CHAR(4) NOT NULL PRIMARY KEY", "dept_name VARCHAR(40), "
                    "UNIQUE KEY (dept_name)"],
    "dept_manager": ["emp_no INT NOT NULL", "dept_no CHAR(4) NOT NULL", "from_date DATE",
                     _EMPLOYEE, _DEPARTMENT, "PRIMARY KEY (emp_no, dept_no)"],
    "dept_emp": ["emp_no INT NOT NULL", "dept_no CHAR(4) NOT NULL", "from_date DATE",
                 _EMPLOYEE, _DEPARTMENT, "PRIMARY KEY (emp_no, dept_no)"],
    "titles": ["emp_no INT NOT NULL", "title VARCHAR(50) NOT NULL", "from_date DATE NOT NULL",
               _EMPLOYEE, "PRIMARY KEY (emp_no, title, from_date)"],
    "salaries": ["emp_no INT NOT NULL", "salary INT", "from_date DATE NOT NULL",
                 _EMPLOYEE, "PRIMARY KEY (emp_no, from_date)"],
}  # fmt: skip


class Changes:
    """Random statements over the tables of a database; those that its keys forbid fail."""

    def __init__(self, server: MariaDB, database: str, seed: int, names: list[str]) -> None:
        self._server, self._database, self._names = server, database, names
        self._chance = random.Random(seed)
        self._columns: dict[str, list[tuple[str, str, str]]] = {
            name: [
                (column, kind, key)
                for column, kind, key in server.execute(
                    "SELECT column_name, column_type, column_key FROM information_schema.columns "
                    f"WHERE table_schema = '{database}' AND table_name = '{name}' "
                    "ORDER BY ordinal_position"
                )
            ]
            for name in names
        }

    def make(self, count: int) -> int:
        """Make transactions of one to four statements; returns how many statements succeeded."""
        connection, done = self._server.connect(self._database), 0
        connection.autocommit(False)
        with connection.cursor() as cursor:
            for _ in range(count):
                for _ in range(self._chance.choice([1, 1, 4])):
                    try:
                        done += bool(cursor.execute(self._statement()))
                    except pymysql.err.MySQLError:
                        pass
                connection.rollback() if self._chance.random() < 0.1 else connection.commit()
        connection.close()
        return done

    def _statement(self) -> str:
        chance, name = self._chance, self._chance.choice(self._names)
        columns = self._columns[name]
        key = next((column, kind) for column, kind, is_key in columns if is_key == "PRI")
        where = f"{key[0]} = {self._value(*key)}"
        at = chance.random()
        if at < 0.5:
            values = ", ".join(self._value(column, kind) for column, kind, _ in columns)
            return f"INSERT INTO {name} VALUES ({values})"
        if at < 0.65:
            return f"UPDATE {name} SET {key[0]} = {self._value(*key)} WHERE {where}"
        if at < 0.85:
            column, kind, _ = chance.choice(columns)
            return f"UPDATE {name} SET {column} = {self._value(column, kind)} WHERE {where}"
        return f"DELETE FROM {name} WHERE {where}"

    def _value(self, column: str, kind: str) -> str:
        number = self._chance.randrange(1, 9)
        if column.endswith("_no") and kind.startswith("char"):
            return f"'d{number:03}'"
        if kind == "point":
            return f"ST_GeomFromText('POINT({number} 1)')"
        if kind.startswith("enum"):
            return "1"
        if kind.startswith("set"):
            return str(number % 8)
        if kind.startswith("year"):
            return str(2000 + number)
        if kind.startswith(("date", "timestamp")):
            return f"'2020-01-0{number}'"
        if kind.startswith(("varchar", "char", "text", "blob")):
            return f"'{column[:3]}{number}'"
        return str(number % 2 if kind == "tinyint(1)" else number)


def _shown(rows: list[dict[str, Any]]) -> list[list[str]]:
    """The rows in one order: in Paimon a place is GeoJSON, and a SET an array."""

    def text(name: str, value: Any) -> str:
        if name == "place":
            value = value is not None
        return f"{name} = {','.join(value) if isinstance(value, list) else value}"

    return sorted([text(name, value) for name, value in row.items()] for row in rows)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("tables", "late"), [(RENTALS, _LATE), (STAFF, "")], ids=["shop", "staff"])
def test_every_table_is_followed(
    mariadb: MariaDB,
    tmp_path: Path,
    without_jvm: None,
    tables: dict[str, list[str]],
    late: str,
    seed: int,
) -> None:
    sync, database = Sync(mariadb, tmp_path), f"known_{len(tables)}_{seed}"
    fresh(mariadb, database)
    stamps = [_STAMP] if late else []
    connection: Any = mariadb.connect(database)
    with connection.cursor() as cursor:
        for name, parts in tables.items():
            stamped = [*stamps, *parts] if not parts[0].startswith(("film_id S",)) else parts
            cursor.execute(f"CREATE TABLE {name} ({', '.join(stamped)})")
        if late:
            cursor.execute(late)
    connection.close()
    changes = Changes(mariadb, database, seed, list(tables))
    succeeded = changes.make(600)
    for _ in range(3):
        sync.database(database, table_conf=KEPT)
        for name in tables:
            there = _shown(mysql_rows(mariadb, f"{database}.{name}"))
            assert _shown(paimon_rows(sync.warehouse, f"ods.{name}")) == there, name
            assert _shown(replayed(sync.warehouse, f"ods.{name}")) == there, name
        succeeded += changes.make(150)
    assert succeeded > 100
    filled = [name for name in tables if mysql_rows(mariadb, f"{database}.{name}")]
    assert len(filled) > len(tables) / 2, filled
