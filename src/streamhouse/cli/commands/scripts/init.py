"""`streamhouse init`: writes a small project that runs at once."""

from importlib.resources import files
from pathlib import Path

from streamhouse.cli.flags import with_flags
from streamhouse.errors import OptionError

_FILES = {
    "README.md": "README.md",
    "shop.sql": "shop.sql",
    "test_revenue.yml": "tests/test_revenue.yml",
    "workflow.yml": ".github/workflows/test.yml",
}
"""The files of `cli/project`, and their places in the new project."""


@with_flags("init")
def init(folder: Path) -> None:
    """Write a project: a script with a view, a test of it, and a workflow for GitHub.

    Creates the folder. Leaves files that exist as they are, and then writes none.
    """
    there = [place for place in _FILES.values() if (folder / place).exists()]
    if there:
        raise OptionError(f"{folder / there[0]} exists; give the name of another folder")
    for name, place in _FILES.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files("streamhouse.cli").joinpath("project", name).read_text("utf-8"))
    print(
        f"{folder} has a project; try\n"
        f"  cd {folder}\n"
        "  streamhouse test tests/test_revenue.yml\n"
        "  streamhouse run shop.sql --warehouse warehouse"
    )
