"""`streamhouse init`: writes a small project that runs at once."""

import shutil
from pathlib import Path

from streamhouse.cli.flags import with_flags
from streamhouse.errors import OptionError

_PROJECT = Path(__file__).parents[2] / "project"


@with_flags("init")
def init(folder: Path) -> None:
    """Write a project: a script with a view, a test of it, and a workflow for GitHub.

    Creates the folder. Leaves files that exist as they are, and then writes none.
    """
    for file in (path for path in _PROJECT.rglob("*") if path.is_file()):
        if (place := folder / file.relative_to(_PROJECT)).exists():
            raise OptionError(f"{place} exists; give the name of another folder")
    shutil.copytree(_PROJECT, folder, dirs_exist_ok=True)
    print(
        f"{folder} has a project; try\n"
        f"  cd {folder}\n"
        "  streamhouse test tests/test_revenue.yml\n"
        "  streamhouse run shop.sql --warehouse warehouse"
    )
