"""Fair queues: slots are shared between clients, the queue is bounded, and no slot is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

import pytest
from tests.waiting import DEADLINE_S

from streamhouse.serve.admission.fair_queue import FairQueue
from streamhouse.serve.errors import Problem


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await work()

    asyncio.run(bounded())


class Requests:
    """Requests for slots of one queue; `order` are the clients by when they got slots."""

    def __init__(self, queue: FairQueue) -> None:
        self.queue = queue
        self.order: list[str] = []
        self.slots: list[ExitStack] = []

    async def request_slot(self, client: str, seconds: float = DEADLINE_S) -> asyncio.Task[None]:
        async def take() -> None:
            self.slots.append(await self.queue.acquire(client, seconds))
            self.order.append(client)

        task = asyncio.create_task(take())
        await settled()
        return task

    async def end_all(self) -> None:
        while self.slots:
            self.slots.pop(0).close()
            await settled()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_clients_take_turns() -> None:
    async def work() -> None:
        requests = Requests(FairQueue("queries", 1, 100))
        tasks = [await requests.request_slot("greedy") for _ in range(5)]
        tasks += [
            await requests.request_slot("a"),
            await requests.request_slot("b"),
            await requests.request_slot("a"),
        ]
        await requests.end_all()
        assert requests.order[0] == "greedy"
        assert set(requests.order[1:4]) == {"greedy", "a", "b"}
        assert requests.order.index("b") < 4 and requests.order[:6].count("a") == 2
        assert (
            len(requests.order) == len(tasks)
            and requests.queue.running == requests.queue.waiting == 0
        )

    run(work)


def test_next_slot_goes_to_the_client_with_the_fewest() -> None:
    async def work() -> None:
        requests = Requests(FairQueue("queries", 3, 100))
        for _ in range(5):
            await requests.request_slot("greedy")
        await requests.request_slot("modest")
        requests.slots[0].close()
        await settled()
        assert requests.order == ["greedy"] * 3 + ["modest"]

    run(work)


def test_shared_lane_keeps_a_slot_for_other_clients() -> None:
    async def work() -> None:
        requests = Requests(FairQueue("queries", 2, 100, shared=True))
        await requests.request_slot("greedy")
        await requests.request_slot("greedy")
        assert requests.order == ["greedy"] and not requests.queue.has_free_slot("greedy")
        assert requests.queue.has_free_slot("modest")
        await requests.request_slot("modest")
        assert requests.order == ["greedy", "modest"]
        alone = FairQueue("queries", 1, 100, shared=True)
        assert alone.has_free_slot("greedy")

    run(work)


def test_full_queue_rejects_the_greediest_client() -> None:
    async def work() -> None:
        requests = Requests(FairQueue("queries", 1, 3))
        running, *waiting = [await requests.request_slot("greedy") for _ in range(4)]
        with pytest.raises(Problem, match="3 requests already wait; try again in") as raised:
            await requests.queue.acquire("greedy", DEADLINE_S)
        assert raised.value.status == 503
        assert int((raised.value.headers or {})["Retry-After"]) >= 1
        modest = await requests.request_slot("modest")
        with pytest.raises(Problem, match="other clients have fewer requests"):
            await waiting[-1]
        await requests.end_all()
        assert running.done() and modest.done() and requests.order.count("greedy") == 3

    run(work)


def test_wait_timeout() -> None:
    async def work() -> None:
        queue = FairQueue("queries", 1, 3)
        slot = await queue.acquire("a", DEADLINE_S)
        with pytest.raises(Problem, match="no slot was free within 0.01 s"):
            await queue.acquire("b", 0.01)
        assert queue.waiting == 0
        slot.close()
        slot.close()
        assert queue.running == 0 and queue.has_free_slot("b")

    run(work)


def test_cancelled_request_frees_its_slot() -> None:
    async def work() -> None:
        requests = Requests(FairQueue("queries", 1, 100))
        await requests.request_slot("a")
        first, second, third = [await requests.request_slot(name) for name in ("b", "c", "d")]
        first.cancel()
        await settled()
        assert requests.queue.waiting == 2
        # One is cancelled at the point in time at which it gets its slot, the other just before.
        third.cancel()
        requests.slots.pop().close()
        second.cancel()
        await settled()
        assert second.cancelled() and third.cancelled()
        assert requests.queue.waiting == requests.queue.running == 0

    run(work)
