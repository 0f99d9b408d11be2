"""`streamhouse setup`: prepares what Streamhouse needs beside its Python packages."""

import json

from streamhouse.cli.flags import with_flags
from streamhouse.cli.run_output import print_stderr


@with_flags("setup")
def setup(demo: bool = True, as_json: bool = False) -> None:
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
        print_stderr(f"Java {result['java']}")
        result.update(prepare(print_stderr))
        print_stderr(f"Paimon's Java core: {result['jar']}")
        if result["archives"]:
            print_stderr("class archives are there")
    if as_json:
        print(json.dumps(result), flush=True)
    check_packages(demo)
    print_stderr("ready: `streamhouse demo` shows a view live" if demo else "ready")
