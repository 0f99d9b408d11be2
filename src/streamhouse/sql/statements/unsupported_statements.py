"""Unsupported statements of Flink and of similar engines, each with an alternative."""

from __future__ import annotations

from typing import NoReturn

from streamhouse.sql.parser.token_cursor import Cursor

UNSUPPORTED = {
    "ANALYZE": "ANALYZE is not supported; leave it out",
    "ADD": "ADD JAR is not supported and not needed; leave it out",
    "REMOVE": "REMOVE JAR is not supported and not needed; leave it out",
    "LOAD": "LOAD MODULE is not supported; leave it out",
    "UNLOAD": "UNLOAD MODULE is not supported; leave it out",
    "COMPILE": "COMPILE PLAN is not supported; leave it out, a changed SELECT is detected",
    "STOP": "STOP JOB is not supported; end the process",
    "QUIT": "QUIT is for Flink's console; leave it out, a script ends by itself",
    "EXIT": "EXIT is for Flink's console; leave it out, a script ends by itself",
    "CLEAR": "CLEAR is for Flink's console; leave it out",
    "HELP": "HELP is for Flink's console; leave it out",
    "SOURCE": "SOURCE is for a console; give `streamhouse run` several files, in their order",
    "TABLE": "TABLE t as a query is not supported; write SELECT * FROM t",
    "UPSERT": "UPSERT is not supported; write INSERT INTO a table with a PRIMARY KEY",
    "REPLACE": "REPLACE TABLE is not supported; use DROP and CREATE",
    "REFRESH": "REFRESH is not supported and not needed; leave it out",
    "CACHE": "CACHE TABLE is not supported; leave it out",
    "UNCACHE": "UNCACHE TABLE is not supported; leave it out",
    "MSCK": "MSCK REPAIR TABLE is not supported and not needed; leave it out",
    "OPTIMIZE": "OPTIMIZE is not supported; use CALL sys.compact(…)",
    "VACUUM": "VACUUM is not supported; use CALL sys.expire_snapshots(…)",
    "COMMENT": "COMMENT ON is not supported; write COMMENT in CREATE TABLE, or use ALTER TABLE",
    "GRANT": "GRANT is not supported; give users tokens that name their tables",
    "REVOKE": "REVOKE is not supported; give users tokens that name their tables",
}


_MODEL = "models are not supported; store a model's results in a table, and look them up"
_PLAN = "EXECUTE PLAN is not supported; write the statement itself, it resumes where it stopped"
_OBJECTS = {
    "CONNECTION": "connections are not supported; write the options in WITH (…) of the table",
    "FUNCTION": "ALTER FUNCTION is not supported; use DROP FUNCTION and CREATE FUNCTION",
    "INDEX": "indexes are not created by statements; use the table's options 'file-index.…'",
    "MODEL": _MODEL,
    "SCHEMA": "SCHEMA is not supported; write DATABASE",
}
_SHOWN = {
    "CREATE CATALOG": "SHOW CREATE CATALOG is not supported; use SHOW CATALOGS",
    "CREATE DATABASE": "SHOW CREATE DATABASE is not supported; use SHOW DATABASES",
    "CREATE MODEL": _MODEL,
    "FULL MODULES": "modules are not supported; use SHOW FUNCTIONS",
    "INDEXES": "indexes are options of a table; use SHOW CREATE TABLE t",
    "JARS": "SHOW JARS is not supported; leave it out, no jar is needed",
    "MODELS": _MODEL,
    "MODULES": "modules are not supported; use SHOW FUNCTIONS",
    "PARTITIONS": "SHOW PARTITIONS is not supported; write SELECT * FROM `t$partitions`",
    "PROCEDURES": "SHOW PROCEDURES is not supported; use CALL sys.…, the guide lists them",
    "TBLPROPERTIES": "SHOW TBLPROPERTIES is not supported; use SHOW CREATE TABLE t",
}
_DESCRIBED = {
    "CATALOG": "DESCRIBE CATALOG is not supported; use SHOW CATALOGS",
    "DATABASE": "DESCRIBE DATABASE is not supported; use SHOW TABLES IN d",
    "EXTENDED": "DESCRIBE EXTENDED is not supported; use DESCRIBE",
    "FORMATTED": "DESCRIBE FORMATTED is not supported; use DESCRIBE",
    "FUNCTION": "DESCRIBE FUNCTION is not supported; use SHOW FUNCTIONS",
    "JOB": "DESCRIBE JOB is not supported; use SHOW JOBS",
    "MODEL": _MODEL,
}


def refuse_object(cursor: Cursor, start: int) -> None:
    """Raise if CREATE, ALTER or DROP is followed by a known object that is not supported."""
    words = [cursor.peek(ahead) for ahead in range(3)]
    while words and words[0] in ("TEMPORARY", "SYSTEM", "UNIQUE", "EXTERNAL"):
        del words[0]
    if words and words[0] in _OBJECTS:
        cursor.unsupported(_OBJECTS[words[0]], start)


def refuse_show(cursor: Cursor) -> None:
    """Raise if SHOW is followed by known words that are not supported."""
    pair = f"{cursor.peek()} {cursor.peek(1)}"
    message = _SHOWN.get(pair) or _SHOWN.get(cursor.peek())
    if message is not None:
        cursor.unsupported(message)


def refuse_described(cursor: Cursor) -> None:
    """Raise if DESCRIBE is followed by a known word that is not supported, and by a name.

    Without a name after it, the word is the name of a table.
    """
    named = cursor.peek(1) or cursor.index + 1 < len(cursor.tokens)
    if cursor.peek() in _DESCRIBED and named and cursor.peek(1) != ".":
        cursor.unsupported(_DESCRIBED[cursor.peek()])


def refuse_plan(cursor: Cursor) -> None:
    """Raise for EXECUTE PLAN."""
    if cursor.at("PLAN"):
        cursor.unsupported(_PLAN)


def refuse_explained(cursor: Cursor) -> NoReturn:
    """Raise for a statement that EXPLAIN does not take."""
    cursor.unsupported(
        f"EXPLAIN {cursor.peek()} is not supported; write EXPLAIN with SELECT, INSERT or a "
        "statement set"
    )
