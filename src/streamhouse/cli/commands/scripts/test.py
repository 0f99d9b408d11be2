"""`streamhouse test`: runs test cases on a script."""

import json
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import typer

from streamhouse.cli.errors import report
from streamhouse.cli.flags import script_variables, with_flags
from streamhouse.errors import OptionError, StreamhouseError

_STYLES = {"-": "red", "+": "green"}
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
    from rich.text import Text

    from streamhouse.cli.output import console
    from streamhouse.testing.run import cases_of

    began, counts, out = time.monotonic(), Counter[str](), console(sys.stdout)
    cases = [name for name in file if name.endswith((".yml", ".yaml"))]
    scripts = [name for name in file if name not in cases]
    try:
        for name in cases:
            known = cases_of(Path(name), scripts, script_variables(variables))
            for run in (run for case, run in known.items() if keyword.lower() in case.lower()):
                outcome = run()
                counts[outcome.result] += 1
                if as_json:
                    print(json.dumps({"file": name, **asdict(outcome)}), flush=True)
                    continue
                title = f"{outcome.result}: {name}: {outcome.name} ({outcome.seconds:.1f} s)"
                for line in (title, *(f"  {problem}" for problem in outcome.problems)):
                    out.print(Text(line, _STYLES.get(line.strip()[:1], "")))
                sys.stdout.flush()
        if not counts:
            wanted = f"has '{keyword}' in its name" if keyword else "is named: add a .yml file"
            raise OptionError(f"no test case {wanted}")
    except StreamhouseError as error:
        report(error, verbose=False)
        raise typer.Exit(_NOT_RUN) from None
    if not as_json:
        total = ", ".join(f"{count} {result}" for result, count in sorted(counts.items()))
        print(f"{total} in {time.monotonic() - began:.1f} s")
    if counts["failed"] or counts["error"]:
        raise typer.Exit(_NOT_RUN if counts["error"] else _FAILED)
