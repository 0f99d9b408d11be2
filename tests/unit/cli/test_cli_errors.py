"""One message, the right exit code, no secrets, whatever went wrong."""

from __future__ import annotations

import ast
import errno
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from tests.waiting import DEADLINE_S
from typer.testing import CliRunner

from streamhouse import errors
from streamhouse.cli.errors import explain, on_failure, report_errors
from streamhouse.cli.main import COMMANDS, build
from streamhouse.errors import ConnectError, SqlError, TableError
from streamhouse.options import hide_secrets

SPARK_TEXT = """[STREAM_FAILED] Query [id = 5, runId = 6] terminated with exception: [X] boom
Traceback (most recent call last):
  File "worker.py", line 1, in main
streamhouse.errors.ConnectError: the server refuses user 'shop'; check the password

The above exception was the direct cause of the following exception:

RuntimeError: outer
\tat org.apache.spark.api.python.BasePythonRunner(PythonRunner.scala:5)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
streamhouse.errors.ConnectError: the server refuses user 'shop'; check the password
SQLSTATE: XXKST"""


class PanicException(BaseException):
    """As the Rust core breaks down."""

    __module__ = "pyo3_runtime"


def failing(error: BaseException) -> Callable[..., Any]:
    def command(number: Annotated[int, typer.Option()] = 1) -> None:
        raise error

    return command


def run(function: Callable[..., Any], *arguments: str) -> Any:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(report_errors(function))
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (TableError("no table"), 1, "error: no table\n"),
        (SqlError("bad", line=1, column=2, source_line="a b"), 1, "error: line 1, column 2: bad\n"),
        (RuntimeError(SPARK_TEXT), 1, "error: the server refuses user 'shop'; check the password"),
        (OSError(errno.ENOSPC, "x", "/data/f"), 1, "error: /data/f: no space left on device\n"),
        (ValueError("odd\nmore"), 2, "internal error: ValueError: odd; run again with --verbose\n"),
        (KeyError(), 2, "internal error: KeyError; run again with --verbose\n"),
        (KeyboardInterrupt(), 130, ""),
        (PanicException("core"), 2, "internal error: PanicException: core; run again with"),
    ],
)
def test_exit_codes_and_messages(error: BaseException, code: int, text: str) -> None:
    result = run(failing(error))
    assert result.exit_code == code
    assert result.stderr.startswith(text)
    assert "Traceback" not in result.stderr and result.stdout == ""
    assert len(result.stderr.splitlines()) <= 3


def test_verbose_adds_the_trace_without_the_password() -> None:
    error = ValueError("connect(password='s3cret!', url=mysql://me:s3cret!@host/db)")
    result = run(failing(error), "--verbose")
    assert result.exit_code == 2
    assert "Traceback (most recent call last)" in result.stderr
    assert "in command" in result.stderr
    assert "s3cret" not in result.stderr


@pytest.mark.parametrize(
    "text",
    [
        "password=hidden",
        "'password' = 'hidden one', x",
        "'password' = 'it''s hidden', x",
        "{'s3.secret-key': 'hidden'}",
        '"secret_access_key": "hidden"',
        "mysql://root:hidden@127.0.0.1:3306",
        "s3.access-key=hidden",
    ],
)
def test_secrets_are_hidden(text: str) -> None:
    assert "hidden" not in hide_secrets(text)
    assert "***" in hide_secrets(text)


def test_a_message_about_a_password_is_unchanged() -> None:
    error = ConnectError("access denied for user 'shop'; check the option 'password'")
    assert explain(error) == (f"error: {error}", 1)


def test_wrong_usage_is_two() -> None:
    assert run(failing(KeyError()), "--number", "x").exit_code == 2
    assert run(failing(KeyError()), "--nosuch").exit_code == 2
    result = CliRunner().invoke(build(["wtch"]), ["wtch"])
    assert result.exit_code == 2 and "watch" in result.stderr


def test_help_and_version_import_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from streamhouse.cli.main import main\n"
        "sys.argv = ['streamhouse', sys.argv[1]]\n"
        "try: main()\n"
        "except SystemExit as e: assert not e.code, e.code\n"
        "heavy = {'pyspark', 'pyarrow', 'pypaimon', 'duckdb', 'sqlglot', 'py4j', 'pandas'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    for option, expected in (("--help", "watch"), ("--version", "streamhouse ")):
        done = subprocess.run(
            [sys.executable, "-c", code, option], capture_output=True, text=True, timeout=DEADLINE_S
        )
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout


def test_every_command_is_listed() -> None:
    result = CliRunner().invoke(build(["--help"]), ["--help"])
    assert result.exit_code == 0
    for name in COMMANDS:
        assert f" {name} " in result.stdout


@pytest.mark.parametrize("error", [ValueError("x"), PanicException("x")])
def test_a_failure_is_reported_before_it_propagates(error: BaseException) -> None:
    seen: list[BaseException] = []
    with pytest.raises(type(error)) as raised, on_failure(seen.append):
        raise error
    assert raised.value is error and seen == [error]


@pytest.mark.parametrize("ending", [KeyboardInterrupt(), SystemExit(0)])
def test_a_requested_end_is_not_a_failure(ending: BaseException) -> None:
    seen: list[BaseException] = []
    with pytest.raises(type(ending)), on_failure(seen.append):
        raise ending
    assert seen == []


def test_errors_of_tasks_are_found_in_what_spark_reports_of_them() -> None:
    """`explain` finds them by the module `errors`; a task must not raise others."""
    own = {name for name, kind in vars(errors).items() if isinstance(kind, type)}
    source = Path(errors.__file__).parent
    elsewhere = [
        f"{path.relative_to(source)}: {node.name}"
        for path in source.rglob("*.py")
        if path.name != "errors.py" and path.relative_to(source).parts[0] != "serve"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        if {base.id for base in node.bases if isinstance(base, ast.Name)} & own
    ]
    assert elsewhere == []
    text = "PythonException: Traceback …\nstreamhouse.errors.RecordError: line 1: no JSON\n\tat org"
    assert explain(Exception(text)) == ("error: line 1: no JSON", 1)


@pytest.mark.parametrize("closed", [">&-", "<&- >&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_the_null_device(tmp_path: Path, closed: str) -> None:
    """Else files get their numbers, and what is printed there."""
    (tmp_path / "lake").mkdir()
    command = f'"$0" query "SELECT 1 AS one" --warehouse "$1" {closed}'
    program = Path(sys.executable).with_name("streamhouse")
    words = ["sh", "-c", command, str(program), str(tmp_path / "lake")]
    ended = subprocess.run(words, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (">&-" in closed.replace("2>&-", "")) == (not ended.stdout)
