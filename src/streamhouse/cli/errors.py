"""How a command ends: its errors, exit codes, and signals that request an end.

| code | when                                                        |
|------|-------------------------------------------------------------|
| 1    | an error that the user can fix (`StreamhouseError`, …)      |
| 2    | wrong usage of the command, or an internal error            |
| 130  | interrupted with Ctrl-C                                     |
| 141  | the reader of our output has closed it (broken pipe)        |

A user sees one message and the code. Ctrl-C and SIGTERM set a flag that is checked between steps.
"""

import contextlib
import errno
import functools
import inspect
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any

import typer

from streamhouse.errors import StreamhouseError, is_panic
from streamhouse.options import hide_secrets

_RAISED = re.compile(r"streamhouse\.errors\.[A-Za-z]+: ([^\r\n]+)")
_INNER = re.compile(r"^[\w.]+(?:Error|Exception|Interrupt|Failed|Invalid)\b.*$", re.MULTILINE)
_USER_ERRNO = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS}
_VERBOSE_HELP = "On an error, print the stack trace, too."

USER_ERROR, INTERNAL_ERROR, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def explain(error: BaseException) -> tuple[str, int]:
    """The message for a failed command, without passwords, and its exit code.

    An error that Spark wrapped is unwrapped: the first message of a Streamhouse error in its text
    is the innermost one, which the user can act upon.
    """
    if isinstance(error, StreamhouseError):
        return hide_secrets(f"error: {error}"), USER_ERROR
    wrapped = _RAISED.search(str(error))
    if wrapped:
        return hide_secrets(f"error: {wrapped.group(1).strip()}"), USER_ERROR
    if isinstance(error, OSError) and error.errno in _USER_ERRNO:
        where = f"{error.filename}: " if error.filename else ""
        return f"error: {where}{os.strerror(error.errno).lower()}", USER_ERROR
    # The last line of a Python traceback in the text has the cause.
    cause = _INNER.findall(str(error))[-1:] or str(error).strip().splitlines()[:1]
    text = ": ".join([type(error).__name__, *cause])
    return hide_secrets(f"internal error: {text}; run again with --verbose"), INTERNAL_ERROR


def is_failure(error: BaseException) -> bool:
    """Whether an exception is a failure, and not a request to end such as `KeyboardInterrupt`."""
    return isinstance(error, Exception) or is_panic(error)


@contextlib.contextmanager
def on_failure(act: Callable[[BaseException], None]) -> Iterator[None]:
    """Call `act` with a failure in the `with` block, which then propagates.

    A request to end, such as `KeyboardInterrupt`, is not a failure.
    """
    try:
        yield
    except BaseException as error:
        if is_failure(error):
            act(error)
        raise


def report_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a command's function: adds `--verbose`, and prints errors as `explain` words them."""
    signature = inspect.signature(function, eval_str=True)
    has_verbose = "verbose" in signature.parameters

    @functools.wraps(function)
    def command(**arguments: Any) -> Any:
        verbose = bool(arguments["verbose"] if has_verbose else arguments.pop("verbose"))
        try:
            result = function(**arguments)
            sys.stdout.flush()
            return result
        except (typer.Exit, typer.Abort, typer.TyperException):
            raise
        except KeyboardInterrupt:
            code = INTERRUPTED
        except BrokenPipeError:
            # Without this the interpreter fails once more when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = BROKEN_PIPE
        except BaseException as error:
            if not is_failure(error):
                raise
            code = report(error, verbose)
        raise typer.Exit(code)

    if not has_verbose:
        _add_verbose(command, signature)
    return command


def _add_verbose(command: Callable[..., Any], signature: inspect.Signature) -> None:
    annotation = Annotated[bool, typer.Option("--verbose", help=_VERBOSE_HELP)]
    verbose = inspect.Parameter(
        "verbose", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation
    )
    parameters = [*signature.parameters.values(), verbose]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}


def report(error: BaseException, verbose: bool) -> int:
    """Print the error to standard error, with its trace if `verbose`; returns its exit code."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if verbose:
        trace = "".join(traceback.format_exception(error))
        console.print(Text(hide_secrets(trace.rstrip()), style="dim"))
    message, code = explain(error)
    console.print(Text(message, style="red"))
    return code


class StopSignal:
    """Handles the signals `numbers`: the first requests a stop, a second one ends at once.

    An exception from a signal handler would be raised wherever the program is, and a library may
    catch or convert it. `at_once` is called before the end at a second signal (exit code 130); it
    must not wait for anything that the main thread may hold. `notice` is written to standard error
    at the first signal, if that is a terminal. Has to be created in the main thread.
    """

    def __init__(
        self,
        numbers: Iterable[signal.Signals] = SIGNALS,
        at_once: Callable[[], None] | None = None,
        notice: str = "",
    ) -> None:
        self._received: int | None = None
        self._at_once = at_once
        self._notice = notice
        for number in numbers:
            signal.signal(number, self._request_stop)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C requested the stop."""
        return self._received == signal.SIGINT

    def requested(self) -> bool:
        """Whether to stop at the next step."""
        return self._received is not None

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if a stop was requested; called between steps."""
        if self.requested():
            raise KeyboardInterrupt

    def _request_stop(self, number: int, frame: object) -> None:
        if self._received is not None:
            if self._at_once is not None:
                self._at_once()
            os._exit(INTERRUPTED)
        self._received = number
        if self._notice and sys.stderr.isatty():
            # Not print: the handler may run in the middle of another print.
            os.write(sys.stderr.fileno(), f"{self._notice}\n".encode())
