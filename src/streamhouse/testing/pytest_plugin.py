"""The pytest plugin: collects the cases of files `test_*.yml` and `*_test.yml` with a `script`."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Each run of pytest imports this module, so the imports that tests need are inside functions.
_NAME = re.compile(r"(test_.*|.*_test)\.ya?ml")
_SCRIPT = re.compile(r"^script\s*:", re.MULTILINE)


class CaseItem(pytest.Item):
    """A test case."""

    run: Callable[[], Any]

    def runtest(self) -> None:
        problems = self.run().problems
        if problems:
            pytest.fail("\n".join(problems), pytrace=False)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.name


class CasesFile(pytest.File):
    """A file of test cases."""

    def collect(self) -> Iterator[CaseItem]:
        from streamhouse.errors import StreamhouseError
        from streamhouse.testing.run import cases_of

        try:
            for name, run in cases_of(self.path):
                item = CaseItem.from_parent(self, name=name)
                item.run = run
                yield item
        except StreamhouseError as error:
            raise self.CollectError(str(error)) from None


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> CasesFile | None:
    """Collect a file of test cases."""
    if _NAME.fullmatch(file_path.name) and _SCRIPT.search(file_path.read_text("utf-8", "replace")):
        return CasesFile.from_parent(parent, path=file_path)
    return None
