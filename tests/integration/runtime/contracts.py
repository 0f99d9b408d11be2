"""The contracts of two shops in MySQL, with every version ever written: the expected result."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterable
from dataclasses import astuple, dataclass, field, replace
from decimal import Decimal

import duckdb

from streamhouse.demo.mariadb import MariaDB

START = datetime.datetime(2026, 4, 28, 9, 0)
ZONES = ("Z1", "Z2", "Z3", "Z4", "")
VENDORS = ("acm", "bay", "cle")
ACTIONS = ("new", "renew", "gift")

SCHEMA = (
    "DROP DATABASE IF EXISTS crm",
    "CREATE DATABASE crm",
    "CREATE TABLE crm.contract (signed_at DATETIME(3) NOT NULL, contract_no BIGINT PRIMARY KEY, "
    "seller INT NOT NULL, buyer BIGINT NOT NULL, vendor CHAR(3), tariff_code SMALLINT, "
    "zone VARCHAR(8), paid DECIMAL(12,2), action ENUM('new','renew','gift'), state TINYINT, "
    "trial TINYINT(1), touched_at DATETIME(3) NOT NULL)",
    "CREATE TABLE crm.contract_app (uid BIGINT PRIMARY KEY, touched_ms BIGINT NOT NULL, "
    "cents INT, user BIGINT, seller INT, vendor VARCHAR(8), code VARCHAR(6), zone VARCHAR(8), "
    "renewal INT, state INT, signed_text VARCHAR(19))",
    "CREATE TABLE crm.seller (id INT PRIMARY KEY, name VARCHAR(30), squad VARCHAR(10), "
    "grade SMALLINT, home VARCHAR(8))",
    "CREATE TABLE crm.tariff (code SMALLINT, vendor CHAR(3), label VARCHAR(20), "
    "weight DECIMAL(6,3), PRIMARY KEY (vendor, code))",
)


@dataclass(frozen=True)
class Contract:
    """A version of a contract, as the warehouse is to have it."""

    source: str
    no: int
    buyer: int
    seller: int
    vendor: str
    code: int
    zone: str | None
    action: str
    paid: Decimal
    state: int
    trial: bool | None
    signed_at: datetime.datetime
    touched_at: datetime.datetime


@dataclass
class Business:
    """Writes both shops, and keeps each version that was ever there to be read."""

    server: MariaDB
    random: random.Random = field(default_factory=lambda: random.Random(20260501))
    versions: list[Contract] = field(default_factory=list)
    deleted: set[tuple[str, int]] = field(default_factory=set)
    _clock: int = 0

    def open(self) -> None:
        """The shops before anybody follows them."""
        self.server.execute(*SCHEMA)
        self.server.execute(
            "USE crm",
            "INSERT INTO seller SELECT seq, CONCAT('Seller ', seq), "
            "ELT(1 + seq % 3, 'red', 'blue', 'O''Neil'), seq % 5, CONCAT('Z', 1 + seq % 4) "
            "FROM seq_1_to_12",
            "INSERT INTO tariff VALUES (1,'acm','month',1),(2,'acm','year',12.5),"
            "(1,'bay','mois',0.333),(3,'bay','an',11),(2,'cle','Jahr, ganz',12.125)",
        )
        self._insert("web", range(1, 161))
        self._insert("app", range(1, 81))

    def go_on(self) -> None:
        """A day's changes: corrections, late events, cancellations, new contracts."""
        for number in (3, 5, 8, 13, 21, 34, 55, 89):
            self._update("web", number, paid=Decimal(number) + Decimal("0.25"))
        for number in (4, 6, 10):
            self._update("web", number, state=9)
        for number in (11, 12):
            self._update("web", number, seller=7, zone=None)
        for number in (2, 7, 40):
            self._update("app", number, paid=Decimal("99.99"), action="renew")
        self._late(16)
        for source, number in (("web", 20), ("web", 22), ("app", 9)):
            table, key = _TABLES[source]
            self.server.execute(f"DELETE FROM crm.{table} WHERE {key} = {number}")
            self.deleted.add((source, number))
        self._insert("web", range(161, 181), zone="Z9")
        self._insert("app", range(81, 91))

    def truth(self) -> duckdb.DuckDBPyConnection:
        """`versions` (in order, `late` ones marked by their time alone), `seller` and `tariff`."""
        con = duckdb.connect(":memory:")
        con.execute(
            "CREATE TABLE versions (source VARCHAR, no BIGINT, buyer BIGINT, seller INT, "
            "vendor VARCHAR, code SMALLINT, zone VARCHAR, action VARCHAR, paid DECIMAL(14,4), "
            "state INT, trial BOOLEAN, signed_at TIMESTAMP_MS, touched_at TIMESTAMP_MS, place INT)"
        )
        for place, one in enumerate(self.versions):
            row = [*astuple(one), place]
            con.execute(f"INSERT INTO versions VALUES ({', '.join('?' * len(row))})", row)
        con.execute("CREATE TABLE deleted (source VARCHAR, no BIGINT)")
        for key in self.deleted:
            con.execute("INSERT INTO deleted VALUES (?, ?)", list(key))
        for table, columns in (
            ("seller", "id INT, name VARCHAR, squad VARCHAR, grade SMALLINT, home VARCHAR"),
            ("tariff", "code SMALLINT, vendor VARCHAR, label VARCHAR, weight DECIMAL(6,3)"),
        ):
            con.execute(f"CREATE TABLE {table} ({columns})")
            for found in self.server.execute(f"SELECT * FROM crm.{table}"):
                marks = ", ".join("?" * len(found))
                con.execute(f"INSERT INTO {table} VALUES ({marks})", list(found))
        con.execute(
            "CREATE VIEW newest AS SELECT * FROM versions ANTI JOIN deleted USING (source, no) "
            "QUALIFY ROW_NUMBER() OVER (PARTITION BY source, no ORDER BY touched_at DESC) = 1"
        )
        return con

    def _insert(self, source: str, numbers: Iterable[int], zone: str | None = None) -> None:
        made = [self._made(source, number, zone) for number in numbers]
        self._send(source, made, "INSERT")

    def _made(self, source: str, number: int, zone: str | None) -> Contract:
        pick = self.random
        web = source == "web"
        signed = START + datetime.timedelta(minutes=pick.randrange(6 * 24 * 60))
        found = zone if zone is not None else pick.choice(ZONES)
        return Contract(
            source=source,
            no=number,
            buyer=pick.randrange(1, 40),
            seller=pick.randrange(1, 13),
            vendor=pick.choice(VENDORS),
            code=pick.randrange(1, 4),
            zone=found or None,
            action=pick.choice(ACTIONS) if web else pick.choice(("new", "renew")),
            paid=Decimal(pick.randrange(100, 90_000)).scaleb(-2),
            state=pick.randrange(3),
            trial=pick.random() < 0.3 if web else None,
            signed_at=signed,
            touched_at=self._tick(),
        )

    def _tick(self) -> datetime.datetime:
        """Each point in time once, so that an order by it is one order only."""
        self._clock += 1
        return START + datetime.timedelta(days=10, milliseconds=self._clock)

    def _update(self, source: str, number: int, **changes: object) -> None:
        mine = [
            version for version in self.versions if (version.source, version.no) == (source, number)
        ]
        newest = max(mine, key=lambda one: one.touched_at)
        made = replace(newest, touched_at=self._tick(), **changes)  # type: ignore[arg-type]
        self._send(source, [made], "REPLACE")

    def _late(self, number: int) -> None:
        """An event that is older than what is there: MySQL has it, the warehouse must not."""
        mine = next(
            version for version in self.versions if (version.source, version.no) == ("web", number)
        )
        early = mine.touched_at - datetime.timedelta(days=1)
        self._send("web", [replace(mine, touched_at=early, paid=Decimal("0.01"))], "REPLACE")

    def _send(self, source: str, rows: list[Contract], verb: str) -> None:
        table, key = _TABLES[source]
        names, values = _web(rows) if source == "web" else _app(rows)
        if verb == "REPLACE":
            pairs = dict(zip(names, values[0], strict=True))
            sets = ", ".join(f"{name} = {value}" for name, value in pairs.items())
            self.server.execute(f"UPDATE crm.{table} SET {sets} WHERE {key} = {pairs[key]}")
        else:
            listed = ", ".join(f"({', '.join(row)})" for row in values)
            self.server.execute(f"INSERT INTO crm.{table} ({', '.join(names)}) VALUES {listed}")
        self.versions += rows


_TABLES = {"web": ("contract", "contract_no"), "app": ("contract_app", "uid")}


def _web(rows: list[Contract]) -> tuple[list[str], list[list[str]]]:
    names = ["contract_no", "buyer", "seller", "vendor", "tariff_code", "zone", "action", "paid",
             "state", "trial", "signed_at", "touched_at"]  # fmt: skip
    return names, [
        [str(r.no), str(r.buyer), str(r.seller), _text(r.vendor), str(r.code), _text(r.zone or " "),
         _text(r.action), str(r.paid), str(r.state), str(int(bool(r.trial))),
         _instant(r.signed_at), _instant(r.touched_at)]
        for r in rows
    ]  # fmt: skip


def _app(rows: list[Contract]) -> tuple[list[str], list[list[str]]]:
    names = ["uid", "touched_ms", "cents", "user", "seller", "vendor", "code", "zone", "renewal",
             "state", "signed_text"]  # fmt: skip
    return names, [
        [str(r.no), str(_milliseconds(r.touched_at)), str(int(r.paid * 100)), str(r.buyer),
         str(r.seller), _text(f" {r.vendor.upper()} "), _text(f"0{r.code}"), _text(r.zone or "-"),
         str(int(r.action == "renew")), str(r.state), _text(f"{r.signed_at:%Y-%m-%d %H:%M:%S}")]
        for r in rows
    ]  # fmt: skip


def _milliseconds(instant: datetime.datetime) -> int:
    since = instant - datetime.datetime(1970, 1, 1)
    return since // datetime.timedelta(milliseconds=1)


def _text(value: str | None) -> str:
    return "NULL" if value is None else "'" + value.replace("'", "''") + "'"


def _instant(value: datetime.datetime) -> str:
    return f"'{value.isoformat(sep=' ', timespec='milliseconds')}'"
