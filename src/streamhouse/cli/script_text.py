"""The text of a script named on the command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streamhouse.errors import OptionError, SqlError

if TYPE_CHECKING:
    from streamhouse.sql.plan import Statement


def read_script(file: str) -> str:
    """The text of a file, or of standard input for `-`; `OptionError` if it is not there."""
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text()
    except FileNotFoundError:
        raise OptionError(f"there is no script '{file}'") from None
    except (IsADirectoryError, UnicodeDecodeError):
        raise OptionError(f"'{file}' is not a text file") from None


def parsed(files: Sequence[str]) -> tuple[list[Statement], list[str]]:
    """The statements of all files as one script, and the file of each if there are several."""
    from streamhouse.sql.script import parse_script

    statements: list[Statement] = []
    origins: list[str] = []
    for file in files:
        try:
            found = parse_script(read_script(file))
        except SqlError as error:
            if len(files) > 1:
                error.within(file)
            raise
        statements += found
        origins += [file] * len(found)
    return statements, origins if len(files) > 1 else []
