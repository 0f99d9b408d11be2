"""Determines whether a statement that writes one table may change other tables, too."""

from __future__ import annotations

import re
from collections.abc import Collection

from streamhouse.mysql.connection import Session
from streamhouse.mysql.table import ENGINES

_SYSTEM = frozenset({"mysql", "information_schema", "performance_schema"})
_GRANT = re.compile(r"GRANT (.+?) ON (\S+) TO ", re.IGNORECASE)
_TABLE = """
SELECT table_type, engine FROM information_schema.tables
WHERE table_schema = %s AND table_name = %s
"""
_TRIGGERS = """
SELECT trigger_name FROM information_schema.triggers
WHERE event_object_schema = %s AND event_object_table = %s
"""
_FUNCTIONS = """
SELECT routine_name FROM information_schema.routines
WHERE routine_type = 'FUNCTION' AND routine_schema <> 'sys'
"""


def side_effects(
    session: Session, target: tuple[str, str] | None, words: Collection[str]
) -> str | None:
    """Why a statement that writes `target` may change another table; None if it does not.

    `target` None: a temporary table. `words`: the statement's words and names in lower case. This
    checks the views, triggers and functions that the server has now. The reason completes a
    sentence.
    """
    grants = [match.groups() for row in session.rows("SHOW GRANTS") for match in _found(row)]
    reason = _functions(session, grants, words)
    if reason is not None or target is None or target[0].lower() in _SYSTEM:
        return reason
    displayed = f"{target[0]}.{target[1]}"
    rows = session.rows(_TABLE, target)
    if not rows:
        return f"{displayed} is not a table that the server has now"
    kind, engine = rows[0]
    if kind != "BASE TABLE" or str(engine).lower() not in ENGINES:
        return f"{displayed} is not an ordinary table"
    if session.rows(_TRIGGERS, target):
        return f"{displayed} has triggers"
    if not _granted(grants, "TRIGGER", target[0]):
        return f"{displayed} may have triggers, which are seen with the privilege TRIGGER only"
    return None


def _functions(
    session: Session, grants: Collection[tuple[str, ...]], words: Collection[str]
) -> str | None:
    functions = {str(row[0]).lower() for row in session.rows(_FUNCTIONS)}
    called = functions & set(words)
    if called:
        return f"it calls the function {min(called)}"
    if "select" in words and functions:
        return "it selects rows, perhaps from views that call functions"
    if not _granted(grants, "SELECT", None) and ("select" in words or "(" in words):
        return "it may call functions, which are seen with the privilege SELECT ON *.* only"
    return None


def _found(row: tuple[object, ...]) -> list[re.Match[str]]:
    return list(_GRANT.finditer(str(row[0])))


def _granted(grants: Collection[tuple[str, ...]], privilege: str, database: str | None) -> bool:
    places = {"*.*"} if database is None else {"*.*", f"`{database}`.*"}
    return any(
        place in places
        and {privilege, "ALL PRIVILEGES"} & {name.strip().upper() for name in listed.split(",")}
        for listed, place in grants
    )
