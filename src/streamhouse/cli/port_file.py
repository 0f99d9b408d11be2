"""The options `--port` and `--port-file` of commands that listen on a port."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from streamhouse.errors import OptionError

PortOption = Annotated[
    int, typer.Option("--port", min=0, max=65535, help="The port; 0 chooses a free one.")
]
PortFileOption = Annotated[
    str | None,
    typer.Option(
        "--port-file",
        metavar="FILE",
        help="Write the port to this file once the server listens.",
    ),
]


def write_port(path: str, port: int) -> None:
    """Write the port to a file, atomically: a reader finds all digits or no file."""
    target = Path(path)
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        part.write_text(f"{port}\n")
        part.replace(target)
    except OSError as error:
        raise OptionError(
            f"option '--port-file': {path} cannot be written: {error.strerror}"
        ) from None
