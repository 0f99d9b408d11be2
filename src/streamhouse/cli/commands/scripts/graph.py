"""`streamhouse graph`: draws the tables and queries of a script."""

import json
import sys
from pathlib import Path

from streamhouse.cli.flags import catalog_options, script_variables, with_flags
from streamhouse.errors import OptionError
from streamhouse.runtime.script_text import parse_scripts, read_scripts


@with_flags("graph")
def graph(
    script: list[str],
    svg: Path | None = None,
    as_json: bool = False,
    warehouse: str | None = None,
    option: list[str] | None = None,
    variables: list[str] | None = None,
) -> None:
    """Draw the tables and queries of a script; runs and creates nothing.

    Each table appears once; below it are the queries that read it, and the tables that those write.
    Lookups are dashed and show their strategy. Errors in the script are reported as by `run`.
    """
    from streamhouse.graph.build import graph_of

    catalog = None if warehouse is None else catalog_options(warehouse, option)
    texts = read_scripts(script, script_variables(variables))
    statements, files = parse_scripts(script, texts)
    drawn = graph_of(statements, catalog, files)
    if svg is not None:
        from streamhouse.graph.svg import draw

        try:
            svg.write_text(draw(drawn), encoding="utf-8")
        except FileNotFoundError:
            raise OptionError(f"--svg {svg}: the folder does not exist") from None
        except IsADirectoryError:
            raise OptionError(f"--svg {svg}: this is a folder; write the name of a file") from None
    if as_json:
        print(json.dumps(drawn.record(), ensure_ascii=False))
        return
    from streamhouse.cli.output import console
    from streamhouse.graph.text import render

    console(sys.stdout).print(render(drawn))
