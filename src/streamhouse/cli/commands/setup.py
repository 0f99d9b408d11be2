"""`streamhouse setup`: prepares what Streamhouse needs beside its Python packages."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

_DemoOption = Annotated[
    bool,
    typer.Option("--demo/--no-demo", help="Also look for MariaDB, which only the demos need."),
]
_JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON object on standard output.")
]


def setup(demo: _DemoOption = True, as_json: _JsonOption = False) -> None:
    """Check Java and MariaDB, fetch Paimon's Java core, and make class archives for quick starts.

    Names the system packages that are missing and the command that installs them, and then ends
    with 1. Can be run again at any time; it does only what is missing.
    """
    from streamhouse.cli.preparation import (
        check_packages,
        install_command,
        missing_packages,
        prepare,
    )

    missing = missing_packages(demo)
    packages = [package for requirement in missing for package in requirement.packages]
    result: dict[str, object] = {"missing": packages}
    if missing:
        result["install"] = install_command(missing)
    if not any(requirement.name.startswith("Java") for requirement in missing):
        from streamhouse.paimon.java.installed_java import check_java

        result["java"] = check_java()
        _print_stderr(f"Java {result['java']}")
        result.update(prepare(_print_stderr))
        _print_stderr(f"Paimon's Java core: {result['jar']}")
        if result["archives"]:
            _print_stderr("class archives are there")
    if as_json:
        print(json.dumps(result), flush=True)
    check_packages(demo)
    _print_stderr("ready: `streamhouse demo` shows a view live" if demo else "ready")


def _print_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
