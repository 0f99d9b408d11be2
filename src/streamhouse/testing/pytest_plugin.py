"""The pytest plugin: collects the cases of files `test_*.yml` and `*_test.yml` with a `script`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# Each run of pytest imports this module, so the imports that tests need are inside functions.
if TYPE_CHECKING:
    from streamhouse.testing.run import Outcome

_NAME = re.compile(r"(test_.*|.*_test)\.ya?ml")
_SCRIPT = re.compile(r"^script\s*:", re.MULTILINE)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> CasesFile | None:
    """Collect a file of test cases."""
    if _NAME.fullmatch(file_path.name) and _SCRIPT.search(file_path.read_text("utf-8", "replace")):
        return CasesFile.from_parent(parent, path=file_path)
    return None


class CasesFile(pytest.File):
    """A file of test cases."""

    def collect(self) -> Iterator[CaseItem]:
        from streamhouse.errors import StreamhouseError
        from streamhouse.testing.run import cases_of

        try:
            for name, run in cases_of(self.path).items():
                item = CaseItem.from_parent(self, name=name)
                item.run = run
                yield item
        except StreamhouseError as error:
            raise self.CollectError(str(error)) from None


class CaseItem(pytest.Item):
    """A test case."""

    run: Callable[[], Outcome]

    def runtest(self) -> None:
        outcome = self.run()
        if outcome.problems:
            pytest.fail("\n".join(outcome.problems), pytrace=False)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.name
