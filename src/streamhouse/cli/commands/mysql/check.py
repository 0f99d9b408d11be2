"""`streamhouse check mysql`: what a server lacks for change data capture, and how to fix it."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer

from streamhouse.cli.flags import key_values, with_flags
from streamhouse.errors import OptionError

if TYPE_CHECKING:
    from streamhouse.mysql.checks import Checked

_STYLES = {"ok": "green", "missing": "red", "info": "dim"}
_TABLE = "table-name"


class CheckedServer(StrEnum):
    """What can be checked."""

    MYSQL = "mysql"


@with_flags("check")
def check(
    kind: CheckedServer,
    hostname: str,
    username: str,
    port: int = 3306,
    password: str | None = None,
    password_env: str | None = None,
    password_file: str | None = None,
    database: list[str] | None = None,
    table: list[str] | None = None,
    option: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Check whether a MySQL or MariaDB server, its user and its tables fit mysql-cdc.

    Lists each requirement as ok or missing, and what to run where it is missing; settings that are
    not required are listed as info. Changes nothing. Exit code 1 if something is missing.
    """
    from streamhouse.mysql import checks
    from streamhouse.mysql.options import parse
    from streamhouse.secret_references import resolve_secrets

    given = {
        "hostname": hostname,
        "port": str(port),
        "username": username,
        "password": _password(password, password_env, password_file),
        "connect.max-retries": "0",
        # The options are those of one table; the checks put in each that they check.
        "database-name": "",
        _TABLE: "",
        **key_values("--option", option, "ssl.mode=required"),
    }
    options = parse(resolve_secrets(given, "mysql"))
    checked = checks.check(options, database or (), _tables(database, table))
    if as_json:
        print(json.dumps(_record(checked), ensure_ascii=False))
    else:
        _print(checked)
    if not checked.ok:
        raise typer.Exit(1)


def _password(literal: str | None, variable: str | None, file: str | None) -> str:
    if variable is not None and file is not None:
        raise OptionError("write only one of --password-env and --password-file")
    if variable is not None:
        return f"${{env:{variable}}}"
    if file is not None:
        return f"${{file:{file}}}"
    return literal or ""


def _tables(databases: list[str] | None, tables: list[str] | None) -> list[str]:
    named = []
    for table in tables or ():
        if "." in table:
            named.append(table)
        elif databases and len(databases) == 1:
            named.append(f"{databases[0]}.{table}")
        else:
            raise OptionError(f"--table {table}: write DATABASE.{table}, or one --database")
    return named


def _record(checked: Checked) -> dict[str, Any]:
    return {
        "address": checked.address,
        "version": checked.version,
        "ok": checked.ok,
        "requirements": [
            {**asdict(one), "error": one.error or None, "fix": one.fix or None}
            for one in checked.requirements
        ],
    }


def _print(checked: Checked) -> None:
    from streamhouse.cli.output import print_listing

    print_listing(
        ("", "requirement", "found", "what to do"),
        (),
        (
            ((one.status, _STYLES[one.status]), one.name, one.value, one.fix)
            for one in checked.requirements
        ),
    )
    missing = sum(requirement.status == "missing" for requirement in checked.requirements)
    about = f"{checked.address} ({checked.version})" if checked.version else checked.address
    summary = f"{missing} missing" if missing else "all that mysql-cdc requires is there"
    print(f"{about}: {summary}")
