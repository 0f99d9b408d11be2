"""Scripts are planned in worker processes of their own: limits, ends, and results."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tests.unit.serve.streams import run
from tests.waiting import DEADLINE_S, looks

from streamhouse.serve.errors import Problem
from streamhouse.serve.http.app import create_app
from streamhouse.serve.pipelines.script_checks import ScriptChecks
from streamhouse.serve.queries import executor
from streamhouse.serve.settings import ServerSettings

GOOD = "CREATE TABLE a (i INT); CREATE TABLE b (i INT); INSERT INTO b SELECT i FROM a;"
ME = "me"


def with_checks(
    folder: Path, work: Callable[[ScriptChecks], Awaitable[None]], plan_s: float = DEADLINE_S
) -> None:
    """Run `work` with the checks of a server of this warehouse."""

    @asynccontextmanager
    async def checks() -> AsyncIterator[ScriptChecks]:
        warehouse = folder / "warehouse"
        warehouse.mkdir()
        app = create_app(ServerSettings({"warehouse": str(warehouse)}))
        app.state.queries.folder = str(folder)
        yield ScriptChecks(app.state.queries, app.state.settings.warehouse, plan_s)
        await app.state.queries.close()
        assert sorted(path.name for path in folder.iterdir()) == ["warehouse"]
        assert list(warehouse.iterdir()) == []

    async def all_of_it() -> None:
        async with checks() as made:
            await work(made)

    run(all_of_it())


def test_scripts_are_planned_and_drawn(tmp_path: Path) -> None:
    async def work(checks: ScriptChecks) -> None:
        found = await checks.check(ME, GOOD)
        assert found["ok"] and found["statements"] == 3
        bad = await checks.check(ME, "CREAT TABLE a (i INT)")
        assert (bad["ok"], bad["error"]["line"], bad["error"]["column"]) == (False, 1, 1)
        large = "-- " + "x" * 1_000_000 + "\n" + GOOD
        assert (await checks.check(ME, large))["ok"]
        drawn = await checks.draw(ME, GOOD)
        assert drawn["svg"].startswith("<svg") and drawn["graph"] == found["graph"]
        assert await checks.draw(ME, GOOD) is drawn

    with_checks(tmp_path, work)


def test_the_time_of_planning_is_limited(tmp_path: Path) -> None:
    async def work(checks: ScriptChecks) -> None:
        found = await checks.check(ME, GOOD)
        assert not found["ok"] and "longer than 0 s" in found["error"]["message"]

    with_checks(tmp_path, work, plan_s=0.0)


def test_a_process_that_dies_is_an_error_of_its_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dead(worker: Any, request: object) -> Any:
        raise EOFError

    async def work(checks: ScriptChecks) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(executor._Worker, "request", _request_with(dead))
            found = await checks.check(ME, GOOD)
        assert not found["ok"] and "too much memory" in found["error"]["message"]
        assert (await checks.check(ME, GOOD))["ok"]

    with_checks(tmp_path, work)


def _request_with(exchange: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """`_Worker.request`, whose message is exchanged by another function."""
    original = executor._Worker.request

    async def request(worker: Any, *given: Any) -> Any:
        with patch.object(worker, "_in_thread", lambda value: exchange(worker, value)):
            return await original(worker, *given)

    return request


def test_scripts_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(checks: ScriptChecks) -> None:
        many = await asyncio.gather(*(checks.check(str(n), GOOD) for n in range(4)))
        assert [found["ok"] for found in many] == [True] * 4
        monkeypatch.setattr(executor, "_SCRIPT_WAIT_S", 0.01)
        with await checks._executor._queues.scripts.acquire("other", DEADLINE_S):
            with pytest.raises(Problem, match="checks of scripts"):
                await checks.check(ME, GOOD)

    with_checks(tmp_path, work)


def test_a_cancelled_start_keeps_its_pipe_until_it_is_passed_on(tmp_path: Path) -> None:
    """Otherwise the process gets what then has its number: the pipe of another request."""
    forking, cancelled, numbers = threading.Event(), threading.Event(), list[int]()

    def fork(run: object, end: Connection, *setup: object) -> None:
        forking.set()
        cancelled.wait(DEADLINE_S)
        numbers.append(end.fileno())
        raise OSError

    async def work(checks: ScriptChecks) -> None:
        task = asyncio.create_task(checks.check(ME, GOOD))
        await asyncio.to_thread(forking.wait, DEADLINE_S)
        task.cancel()
        await asyncio.wait([task])
        cancelled.set()
        for _ in looks():
            if numbers:
                break
            await asyncio.sleep(0.01)

    with patch.object(executor, "fork", fork):
        with_checks(tmp_path, work)
    assert numbers[0] >= 0
