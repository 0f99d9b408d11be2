"""Runs test cases, each in a warehouse of its own."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

from streamhouse.errors import OptionError, StreamhouseError
from streamhouse.options import hide_secrets
from streamhouse.runtime.script_text import parse_scripts, read_scripts
from streamhouse.sql.syntax import Statement
from streamhouse.testing.cases import Case, read_cases
from streamhouse.testing.tested_script import TestedScript
from streamhouse.work_folder import work_folder

Result: TypeAlias = Literal["passed", "failed", "error"]
_MEMORY = "/dev/shm"
"""A folder in memory, where files cost less time; systems other than Linux have none."""


@dataclass(frozen=True)
class Outcome:
    """How a case has ended: `failed` if rows differ, `error` if it could not run to its end.

    `problems` are lines of text: for each table that differs what is expected, and the error.
    """

    name: str
    result: Result
    seconds: float
    problems: Sequence[str] = ()


def cases_of(
    path: Path,
    scripts: Sequence[str] = (),
    variables: Mapping[str, str] = MappingProxyType({}),
) -> list[tuple[str, Callable[[], Outcome]]]:
    """The names of the cases of a file, each with what runs it; an error is in its outcome.

    `scripts` are the files of the script, by default those that the file names; `variables` are
    values for `${NAME}` in them, beside those of the file. Raises `StreamhouseError` if the file or
    its script cannot be read or parsed.
    """
    file = read_cases(path)
    names = list(scripts) or [str(path.parent / name) for name in file.script]
    if not names:
        raise OptionError(f"{path}: 'script' is missing; name the SQL script that it tests")
    texts = read_scripts(names, {**file.variables, **variables})
    try:
        statements, files = parse_scripts(names, texts, connects=False)
    except StreamhouseError as error:
        raise error.within(names[0]) if len(names) == 1 else error from None
    files = files or names * len(statements)
    return [(case.name, partial(_run, case, statements, files)) for case in file.tests]


def run_tests(path: Path) -> Iterator[Outcome]:
    """Run the cases of a file one by one; see `cases_of`.

    >>> [outcome.result for outcome in run_tests(Path("tests/revenue.yml"))]
    ['passed', 'passed']
    """
    return (run() for _, run in cases_of(path))


def _run(case: Case, statements: Sequence[Statement], files: Sequence[str]) -> Outcome:
    began, error = time.monotonic(), list[str]()
    parent = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with work_folder("streamhouse-test-", parent) as folder:
        script = TestedScript(case, folder)
        try:
            # The time of the rounds is of this context only.
            copy_context().run(script.run, statements, files)
        except StreamhouseError as raised:
            error = hide_secrets(f"error: {raised}").splitlines()
    problems = [*script.problems, *error]
    result: Result = "error" if error else "failed" if problems else "passed"
    return Outcome(case.name, result, time.monotonic() - began, problems)
