"""How many runs may be at slow provider clusters at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from windowbox.clients.kubernetes import bulkhead
from windowbox.clients.kubernetes.bulkhead import Bulkhead
from windowbox.errors import Waiting

POOL = "infrastructures"


@contextlib.asynccontextmanager
async def taken(turns: Bulkhead, *hosts: str) -> AsyncIterator[None]:
    """A turn at each of the hosts."""
    async with contextlib.AsyncExitStack() as stack:
        for number, host in enumerate(hosts):
            await stack.enter_async_context(turns.turn(POOL, host, number))
        yield


async def known(turns: Bulkhead, host: str) -> None:
    async with turns.turn(POOL, host, "first"):
        pass


async def known_as_slow(turns: Bulkhead, *hosts: str) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bulkhead, "_PATIENCE", 0.0)
        for host in hosts:
            await known(turns, host)


async def admitted(turns: Bulkhead, host: str, pool: str = POOL) -> bool:
    with contextlib.suppress(Waiting):
        async with turns.turn(pool, host, "another"):
            return True
    return False


@pytest.fixture(autouse=True)
def _no_introduction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulkhead, "_INTRODUCTION", 0.01)


async def test_a_cluster_that_has_not_answered_yet_has_a_quarter_of_the_slots() -> None:
    turns = Bulkhead(16)
    async with taken(turns, "a", "a", "a", "a"):
        assert not await admitted(turns, "a")
        assert await admitted(turns, "b")
        assert await admitted(turns, "a", pool="bastions")


async def test_all_that_are_not_known_to_be_fast_have_half_of_the_slots() -> None:
    turns = Bulkhead(16)
    await known(turns, "fast")
    async with taken(turns, *"aaaabbbb"):
        assert not await admitted(turns, "c")
        assert await admitted(turns, "fast")


async def test_a_cluster_known_to_be_fast_may_have_all_slots() -> None:
    turns = Bulkhead(16)
    async with taken(turns, *"a" * 4):
        assert not await admitted(turns, "a")
    await known(turns, "a")
    async with taken(turns, *"a" * 15):
        assert await admitted(turns, "a")


async def test_a_first_answer_is_waited_for_shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulkhead, "_INTRODUCTION", 10.0)
    turns = Bulkhead(4)
    async with asyncio.TaskGroup() as group, taken(turns, "a"):
        another = group.create_task(admitted(turns, "a"))
        await asyncio.sleep(0)  # it runs up to where it waits
    assert another.result()


async def test_many_do_not_each_wait_for_a_first_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulkhead, "_INTRODUCTION", 0.1)
    turns = Bulkhead(4)
    async with taken(turns, "a"), asyncio.timeout(60):
        for _ in range(200):  # 20 s, were each to wait
            assert not await admitted(turns, "a")


async def test_runs_beyond_the_share_are_stopped_when_a_cluster_turns_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = Bulkhead(16)
    await known(turns, "a")
    monkeypatch.setattr(bulkhead, "_PATIENCE", 0.01)
    async with taken(turns, *"aaaa"):
        # A timer may come a millisecond early; this one comes three seconds early.
        asyncio.get_running_loop().call_soon(monkeypatch.setattr, bulkhead, "_PATIENCE", 3.0)
        with pytest.raises(TimeoutError):
            async with turns.turn(POOL, "a", "fifth"):
                await asyncio.Event().wait()
        assert not await admitted(turns, "a")


async def test_a_run_has_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulkhead, "BUDGET", 0.01)
    with pytest.raises(TimeoutError):
        async with Bulkhead(16).turn(POOL, "a", "first"):
            await asyncio.Event().wait()


async def test_quick_runs_do_not_make_a_slow_cluster_fast_at_once() -> None:
    turns = Bulkhead(16)
    await known_as_slow(turns, "a")
    await known(turns, "a")
    async with taken(turns, *"aaaa"):
        assert not await admitted(turns, "a")


async def test_a_cluster_that_was_slow_has_to_be_quick_once_to_be_fast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = Bulkhead(16)
    monkeypatch.setattr(bulkhead, "_REMEMBERED", 0.0)
    await known_as_slow(turns, "a")
    async with taken(turns, *"aaaa"):
        assert not await admitted(turns, "a")
    async with taken(turns, *"aaaa"):
        assert await admitted(turns, "a")


async def test_a_new_cluster_takes_the_place_of_the_slowest_run(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, stopped = Bulkhead(16), list[str]()

    async def hang(host: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with turns.turn(POOL, host, object()):
                await asyncio.Event().wait()
        stopped.append(host)

    async with asyncio.TaskGroup() as group:
        hanging = [group.create_task(hang(host)) for host in "aaaabbbc"]
        await asyncio.sleep(0)  # they run up to where they wait
        assert not await admitted(turns, "young")
        assert stopped == []
        monkeypatch.setattr(bulkhead, "_PATIENCE", 0.0)
        monkeypatch.setattr(bulkhead, "_INTRODUCTION", 10.0)
        assert await admitted(turns, "new")
        assert stopped == ["a"]
        for task in hanging:
            task.cancel()


async def test_fast_clusters_are_remembered_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulkhead, "_MOST_HOSTS", 3)
    turns = Bulkhead(16)
    await known(turns, "fast")
    await known_as_slow(turns, "slow", "slower", "slowest", "another")
    async with taken(turns, *["fast"] * 16):
        pass


async def test_more_waiting_runs_are_retried_later() -> None:
    turns = Bulkhead(16)
    delays = []
    async with taken(turns, *"aaaa"):
        for number in range(200):
            with pytest.raises(Waiting) as refused:
                async with turns.turn(POOL, "a", f"w{number}"):
                    pass
            delays.append(refused.value.retry_after or 0.0)
    assert delays[0] <= 3.0
    assert delays[-1] >= 20.0
