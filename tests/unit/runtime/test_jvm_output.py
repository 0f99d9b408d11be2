"""The file with what Spark's JVM writes to its standard error."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from streamhouse.runtime.spark import jvm
from streamhouse.runtime.spark.jvm import JvmOutput


@pytest.fixture
def output() -> JvmOutput:
    return JvmOutput()


@pytest.fixture
def write(output: JvmOutput) -> Iterator[Callable[[str], None]]:
    descriptor = output.open()

    def written(text: str) -> None:
        os.write(descriptor, text.encode())

    yield written
    os.close(descriptor)


def test_each_call_returns_what_is_new(output: JvmOutput, write: Callable[[str], None]) -> None:
    write("one\n")
    assert output.new() == b"one\n"
    assert output.new() == b""
    write("two\n")
    assert output.new() == b"two\n"
    assert output.tail() == "one\ntwo\n"
    assert output.tail(4) == "two\n"


def test_a_long_file_is_emptied_once_it_was_read(
    output: JvmOutput, write: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm, "_MOST_BYTES", 8)
    write("0123456789")
    assert output.new() == b"0123456789"
    assert output.tail() == ""
    write("later")
    assert output.new() == b"later"


def test_the_last_lines_are_those_without_stack_traces(
    output: JvmOutput, write: Callable[[str], None]
) -> None:
    write("".join(f"line {number}\n\tat frame\n  more\n\n" for number in range(9)))
    assert output.last_lines() == "line 4 | line 5 | line 6 | line 7 | line 8"


def test_without_a_file_there_is_nothing() -> None:
    nothing = JvmOutput()
    assert (nothing.new(), nothing.tail(), nothing.last_lines()) == (b"", "", "")
