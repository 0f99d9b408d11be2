from __future__ import annotations

import subprocess
import sys
import time

import pytest

from streamhouse.demo import measured_run
from streamhouse.demo.measured_run import PeakMemory

_HOLDS_64_MB = "data = bytearray(b'x' * (64 << 20)); print(flush=True); input()"
_WITH_A_CHILD = (
    "import subprocess, sys; "
    f"subprocess.run([sys.executable, '-c', {_HOLDS_64_MB!r}]) if sys.argv[1:] else None; "
)


@pytest.mark.parametrize("code", [_HOLDS_64_MB, _WITH_A_CHILD])
def test_a_process_and_its_children_are_measured_alone(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured_run, "_EVERY_S", 0.05)
    own = bytearray(b"x" * (256 << 20))
    command = [sys.executable, "-c", code, "child"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        memory = PeakMemory(process.pid)
        assert process.stdout is not None and process.stdout.readline()
        while memory.peak_mb < 64:
            assert process.poll() is None
            time.sleep(0.01)
        process.communicate(b"\n")
    assert 64 < memory.stop() < 200 < len(own) >> 20


def test_a_process_that_has_ended_has_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_run, "_EVERY_S", 0.01)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        memory = PeakMemory(process.pid)
        process.communicate(b"\n")
    assert memory.stop() < 200
