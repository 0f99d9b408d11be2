"""Errors cross processes: from tasks to the driver, and from workers to the server."""

import pickle
from collections.abc import Iterator

import pytest

from streamhouse import errors
from streamhouse.errors import StreamhouseError


def _kinds(kind: type[StreamhouseError]) -> Iterator[type[StreamhouseError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _kinds(each)


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in _kinds(StreamhouseError)
        if kind.__module__ == errors.__name__ and kind is not errors.SlowReaderError
    ],
)
def test_an_error_keeps_its_text_when_it_is_pickled(kind: type[StreamhouseError]) -> None:
    error = kind("table t is gone")
    found = pickle.loads(pickle.dumps(error))
    assert (type(found), str(found)) == (kind, str(error))


def test_a_full_disk_is_told_across_processes() -> None:
    error = errors.NoSpaceError()
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert "no room" in str(error)
