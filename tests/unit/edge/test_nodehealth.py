"""The health of nodes, by the responses of their kube-proxies."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from tests.support.cases import cases
from tests.support.running import eventually, soon
from windowbox.models.loadbalancers import KUBE_PROXY_PORT
from workers.loadbalancer.edge import nodehealth
from workers.loadbalancer.edge.nodehealth import HEALTHY, Health, NodeHealth, initial, next_state, pause

NODE = f"127.68.{os.getpid() % 250}"


@cases(
    "before answers healthy",
    ("LB-7-cluster-one-failure-may-be-chance", HEALTHY, [False], True),
    ("LB-7-cluster-two-are-none", HEALTHY, [False, False], False),
    ("LB-7-cluster-in-a-row", HEALTHY, [False, True, False], True),
    ("LB-7-cluster-one-success-is-enough", Health(healthy=False, failures=7), [True], True),
    ("all-are-new", initial(only_new=True), [], True),
    ("all-are-new-and-one-failure-may-be-chance", initial(only_new=True), [False], True),
    ("a-new-one-has-to-answer-first", initial(only_new=False), [], False),
    ("and-then-gets-traffic", initial(only_new=False), [True], True),
)
def test_a_node_is_judged_by_its_answers(before: Health, answers: list[bool], healthy: bool) -> None:
    for answered in answers:
        before = next_state(before, answered=answered)
    assert before.healthy == healthy


def test_a_node_that_fails_again_and_again_waits_longer_each_time() -> None:
    """Each change of its health is a write to Envoy, and its cluster decides how often it fails."""
    health, waited = HEALTHY, list[int]()
    for _ in range(9):
        for _ in range(2):
            health = next_state(health, answered=False)
        assert not health.healthy, "its traffic is lost: it is out at once"
        successes = 0
        while not health.healthy:
            health, successes = next_state(health, answered=True), successes + 1
        waited.append(successes)
    assert waited == [1, 2, 4, 8, 16, 32, 64, 64, 64]
    for _ in range(100):
        health = next_state(health, answered=True)
    assert health == HEALTHY


@cases(
    "nodes suspects suspect seconds",
    ("few", 4, 0, False, 3.0),
    ("as-many-as-three-seconds-allow", 5100, 0, False, 3.0),
    ("many-healthy", 17000, 1, False, 10.0),
    ("a-suspect-among-many", 5000, 1, True, 0.5),
    ("all-are-suspects", 5000, 5000, True, 50.0),
)
def test_a_suspect_does_not_wait_for_the_healthy(
    nodes: int, suspects: int, suspect: bool, seconds: float
) -> None:
    assert pause(nodes, suspects, suspect=suspect) == seconds


@contextlib.asynccontextmanager
async def answering(address: str, said: list[bytes]) -> AsyncIterator[None]:
    """A kube-proxy that responds with the content of `said`, which may be empty."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(said[0])
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, address, KUBE_PROXY_PORT)
    try:
        yield
    finally:
        server.close()


_OK, _DRAINING = b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 503 Service Unavailable\r\n\r\n"


@cases(
    "said healthy",
    ("healthy", _OK, True),
    ("draining", _DRAINING, False),
    ("hangs-up", b"", False),
    ("says-nothing", b"\r\n", False),
    ("never-ends", b"x" * 200_000, False),
)
async def test_a_node_is_healthy_if_it_answers_200(said: bytes, healthy: bool) -> None:
    async with answering(f"{NODE}.1", [said]):
        assert await nodehealth.is_healthy(f"{NODE}.1") is healthy


async def test_a_node_that_does_not_answer_is_unhealthy() -> None:
    assert await nodehealth.is_healthy(f"{NODE}.2") is False
    with socket.create_server((f"{NODE}.3", KUBE_PROXY_PORT)):
        assert await nodehealth.is_healthy(f"{NODE}.3") is False


async def test_a_paused_checker_does_not_blame_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodehealth, "_TOO_LATE", -1.0)  # however soon its end is noticed, that is too late
    with socket.create_server((f"{NODE}.4", KUBE_PROXY_PORT)):
        assert await nodehealth.is_healthy(f"{NODE}.4") is None


@pytest.mark.parametrize("lacking", [errno.EMFILE, errno.ENOBUFS, errno.EADDRNOTAVAIL])
async def test_a_checker_without_resources_does_not_blame_the_node(
    lacking: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def open_connection(*_: object) -> None:
        raise OSError(lacking, os.strerror(lacking))

    monkeypatch.setattr(asyncio, "open_connection", open_connection)
    assert await nodehealth.is_healthy(f"{NODE}.8") is None


async def test_few_checks_are_under_way_and_failed_ones_are_repeated_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    under_way, most, answers = 0, 0, asyncio.Semaphore(0)
    asked: Counter[str] = Counter()

    async def is_healthy(address: str) -> bool | None:
        nonlocal under_way, most
        asked[address] += 1
        under_way += 1
        most = max(most, under_way)
        try:
            await answers.acquire()
        finally:
            under_way -= 1
        return False

    monkeypatch.setattr(nodehealth, "is_healthy", is_healthy)
    nodes = [f"127.9.{i // 250}.{i % 250 + 1}" for i in range(2000)]
    async with asyncio.TaskGroup() as group:
        health = NodeHealth(group, lambda _: None)
        health.follow({"a": [f"{NODE}.9"], "b": [f"{NODE}.10"]})
        health.follow({"a": [f"{NODE}.9", *nodes], "b": [f"{NODE}.10", f"{NODE}.11"]})
        await eventually(lambda: most > nodehealth._AT_ONCE_OF_CLUSTER)  # cluster a is at its limit
        assert f"{NODE}.11" in asked, "no cluster takes the places of others"
        assert most <= nodehealth._AT_ONCE_OF_CLUSTER + 3
        for _ in range(2 * len(nodes)):
            answers.release()
        await eventually(lambda: asked[f"{NODE}.9"] > 1)  # healthy as yet: the next check decides
        await eventually(lambda: asked[f"{NODE}.11"] > 1)  # its cluster has few suspects
        assert max(asked[node] for node in nodes) == 1, "many suspects are checked less often"
        health.follow({})


async def test_health_changes_are_reported_once() -> None:
    changed = asyncio.Event()
    said = [_OK]
    async with answering(f"{NODE}.5", said), asyncio.TaskGroup() as group:
        health = NodeHealth(group, lambda _: changed.set())
        health.follow({"a": [f"{NODE}.5"], "b": [f"{NODE}.6"]})
        assert f"{NODE}.6" not in health.failing, "no node of its cluster was checked before"
        await changed.wait()
        assert health.failing == {f"{NODE}.6"}
        health.follow({"a": [f"{NODE}.5", f"{NODE}.7"]})
        assert f"{NODE}.7" in health.failing, "the other is known to serve, and this one is not"
        assert f"{NODE}.6" not in health.failing, "it is no longer checked"
        said[0] = _DRAINING
        await eventually(lambda: f"{NODE}.5" in health.failing)
        said[0] = _OK
        await eventually(lambda: f"{NODE}.5" not in health.failing)
        health.follow({})


async def test_the_first_check_of_a_new_node_is_reported_whatever_it_says() -> None:
    """Until then, the node is left out."""
    changed = asyncio.Event()
    async with answering(f"{NODE}.12", [_OK]), asyncio.TaskGroup() as group:
        health = NodeHealth(group, lambda address: changed.set() if address == f"{NODE}.13" else None)
        health.follow({"a": [f"{NODE}.12"]})
        assert not health.awaits_check(f"{NODE}.12"), "the first nodes may serve already"
        health.follow({"a": [f"{NODE}.12", f"{NODE}.13"]})
        assert health.awaits_check(f"{NODE}.13")
        await soon(changed.wait())
        assert not health.awaits_check(f"{NODE}.13")
        assert health.failing == {f"{NODE}.13"}
        health.follow({})
