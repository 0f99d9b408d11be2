"""`streamhouse graph`: draws the tables and queries of a script."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from streamhouse.cli.arguments import OptionsArgument, catalog_options
from streamhouse.cli.script_text import parsed
from streamhouse.errors import OptionError


def graph(
    script: Annotated[
        list[str],
        typer.Argument(
            metavar="SCRIPT...",
            help="The SQL script; - reads stdin. Several files are one script, in their order.",
        ),
    ],
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write the drawing as SVG, too.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print nodes and edges as one JSON object.")
    ] = False,
    warehouse: Annotated[
        str | None,
        typer.Option(
            "--warehouse",
            envvar="STREAMHOUSE_WAREHOUSE",
            metavar="DIR",
            help="Where tables are that the script does not create.",
        ),
    ] = None,
    option: OptionsArgument = None,
) -> None:
    """Draw the tables and queries of a script; nothing is run or created.

    Each table stands once, below it the queries that read it and the tables that those write.
    Lookups are dashed and tell their strategy. Mistakes in the script are told as by `run`.
    """
    from streamhouse.graph.build import graph_of

    given = None if warehouse is None else catalog_options(warehouse, option)
    statements, files = parsed(script)
    found = graph_of(statements, given, files)
    if svg is not None:
        from streamhouse.graph.svg import draw

        try:
            svg.write_text(draw(found), encoding="utf-8")
        except FileNotFoundError:
            raise OptionError(f"--svg {svg}: there is no such folder") from None
        except IsADirectoryError:
            raise OptionError(f"--svg {svg}: this is a folder; name a file in it") from None
    if as_json:
        print(json.dumps(found.record(), ensure_ascii=False))
        return
    from streamhouse.cli.output import console
    from streamhouse.graph.text import render

    console(sys.stdout).print(render(found))
