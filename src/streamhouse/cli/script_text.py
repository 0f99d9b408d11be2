"""The text of a script named on the command line."""

from __future__ import annotations

import sys
from pathlib import Path

from streamhouse.errors import OptionError


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
