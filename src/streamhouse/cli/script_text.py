"""Reads and parses the scripts that are named on the command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streamhouse.errors import OptionError, SqlError

if TYPE_CHECKING:
    from streamhouse.sql.syntax import Statement


def read_script(file: str) -> str:
    """The text of a file, or of standard input for `-`; `OptionError` if it does not exist."""
    if file == "-":
        return sys.stdin.read()
    try:
        # Without the byte order mark that some editors write.
        return Path(file).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise OptionError(f"script '{file}' does not exist") from None
    except (IsADirectoryError, UnicodeDecodeError):
        raise OptionError(f"'{file}' is not a text file") from None


def read_scripts(files: Sequence[str]) -> list[str]:
    """The text of each file, as `read_script` reads it."""
    return [read_script(file) for file in files]


def join_scripts(files: Sequence[str], texts: Sequence[str]) -> str:
    """The text of all files as one script; `texts` are theirs."""
    if len(files) == 1:
        return texts[0]
    parts = [f"-- {Path(file).name}\n{text}" for file, text in zip(files, texts, strict=True)]
    return "\n;\n".join(parts)


def parse_scripts(
    files: Sequence[str], texts: Sequence[str] | None = None
) -> tuple[list[Statement], list[str]]:
    """The statements of all files as one script, and the file of each if there are several.

    `texts` are the files' texts, if they have been read already. If the script creates functions,
    Python modules are from now on also searched in the folders of the files.
    """
    from streamhouse.sql.statements.create_function import declared_after
    from streamhouse.sql.statements.script import parse_script
    from streamhouse.sql.udf.declaration import NONE

    statements: list[Statement] = []
    origins: list[str] = []
    functions = NONE
    for file, text in zip(files, read_scripts(files) if texts is None else texts, strict=True):
        try:
            in_file = parse_script(text, functions)
        except SqlError as error:
            if len(files) > 1:
                error.within(file)
            raise
        for statement in in_file:
            functions = declared_after(functions, statement)
        statements += in_file
        origins += [file] * len(in_file)
    _search_modules_beside(statements, files)
    return statements, origins if len(files) > 1 else []


def _search_modules_beside(statements: Sequence[Statement], files: Sequence[str]) -> None:
    """Add the folders of a script's files to the search path of its functions' modules."""
    from streamhouse.sql.syntax import CreateFunction

    if any(isinstance(statement, CreateFunction) for statement in statements):
        from streamhouse.sql.udf_modules.module import search

        search([Path(file).parent for file in files])
