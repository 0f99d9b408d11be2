"""`streamhouse test`: runs test cases on a script."""

import json
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import typer

from streamhouse.cli.errors import report
from streamhouse.cli.flags import script_variables, with_flags
from streamhouse.errors import OptionError, StreamhouseError

_COLOURS = {"-": "red", "+": "green"}
_FAILED, _NOT_RUN = 1, 2


@with_flags("test")
def test(
    file: list[str],
    keyword: str = "",
    variables: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Test the views of a script: rows given in rounds, and the rows expected after each.

    The test gives the rows of Kafka topics, MySQL tables, generators and other sources. Neither
    Spark nor a server is needed, and nothing is left behind.

    Exits with 0 if all cases pass, 1 if rows differ, and 2 if a file or a case cannot run.
    """
    from streamhouse.testing.run import cases_of

    began, counts = time.monotonic(), Counter[str]()
    files = [name for name in file if name.endswith((".yml", ".yaml"))]
    scripts = [name for name in file if name not in files]
    try:
        for name in files:
            for case, run in cases_of(Path(name), scripts, script_variables(variables)):
                if keyword.lower() not in case.lower():
                    continue
                outcome = run()
                counts[outcome.result] += 1
                if as_json:
                    typer.echo(json.dumps({"file": name, **asdict(outcome)}))
                    continue
                typer.echo(f"{outcome.result}: {name}: {case} ({outcome.seconds:.1f} s)")
                for line in outcome.problems:
                    typer.secho(f"  {line}", fg=_COLOURS.get(line.strip()[:1]))
        if not counts:
            wanted = f"has '{keyword}' in its name" if keyword else "is named; add a .yml file"
            raise OptionError(f"no test case {wanted}")
    except StreamhouseError as error:
        report(error, verbose=False)
        raise typer.Exit(_NOT_RUN) from None
    if not as_json:
        total = ", ".join(f"{count} {result}" for result, count in sorted(counts.items()))
        typer.echo(f"{total} in {time.monotonic() - began:.1f} s")
    if counts["failed"] or counts["error"]:
        raise typer.Exit(_NOT_RUN if counts["error"] else _FAILED)
