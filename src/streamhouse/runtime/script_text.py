"""Reads and parses the scripts that are named on the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from streamhouse.errors import OptionError, StreamhouseError

if TYPE_CHECKING:
    from streamhouse.sql.syntax import Statement

T = TypeVar("T")


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


def read_scripts(files: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """The text of each file, with the values of its variables."""
    texts = [read_script(file) for file in files]
    if not any("${" in text for text in texts):
        # Loads no parser: Spark starts before it.
        return texts
    from streamhouse.sql.script_variables import with_variables

    return _each(files, texts, lambda text: with_variables(text, variables))


def _each(files: Sequence[str], texts: Sequence[str], change: Callable[[str], T]) -> list[T]:
    """The result of `change` for each text; an error names the file, if there are several."""
    results = []
    for file, text in zip(files, texts, strict=True):
        try:
            results.append(change(text))
        except StreamhouseError as error:
            if len(files) > 1:
                error.within(file)
            raise
    return results


def join_scripts(files: Sequence[str], texts: Sequence[str]) -> str:
    """The text of all files as one script; `texts` are theirs."""
    if len(files) == 1:
        return texts[0]
    parts = [f"-- {Path(file).name}\n{text}" for file, text in zip(files, texts, strict=True)]
    return "\n;\n".join(parts)


def parse_scripts(
    files: Sequence[str], texts: Sequence[str], connects: bool = True
) -> tuple[list[Statement], list[str]]:
    """The statements of all files as one script, and the file of each if there are several.

    `texts` are the files' texts. If the script creates functions, Python modules are from now on
    also searched in the folders of the files. Unless it `connects` to servers, the environment need
    not have the variables that options refer to.
    """
    from streamhouse.sql.script_variables import with_references
    from streamhouse.sql.statements.create_function import declared_after
    from streamhouse.sql.statements.script import parse_script
    from streamhouse.sql.udf.function import NONE

    functions = NONE

    def parse(text: str) -> list[Statement]:
        nonlocal functions
        statements = parse_script(with_references(text, required=connects), functions)
        for statement in statements:
            functions = declared_after(functions, statement)
        return statements

    by_file = _each(files, texts, parse)
    statements = [statement for in_file in by_file for statement in in_file]
    _search_modules_beside(statements, files)
    if len(files) == 1:
        return statements, []
    return statements, [file for file, in_file in zip(files, by_file, strict=True) for _ in in_file]


def _search_modules_beside(statements: Sequence[Statement], files: Sequence[str]) -> None:
    """Add the folders of a script's files to the search path of its functions' modules."""
    from streamhouse.sql.syntax import CreateFunction

    if any(isinstance(statement, CreateFunction) for statement in statements):
        from streamhouse.sql.udf_modules.module import search

        search([Path(file).parent for file in files])
