"""The HTTPS server of webhooks, asked as API servers ask, and its lookups in a slow API server."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import orjson
import pytest
from aiohttp import web

from tests.servers.webhooks.callers import MANAGER, NETWORK_POLICY, NODE, Caller, allowed, asked, never
from tests.support import apiservers, webserver
from tests.support.admitted import Json, resource
from tests.support.cases import cases
from tests.support.reviews import UID, admission_review, mutated, response
from tests.support.rules import rule
from webhooks import connections, lookups, server
from webhooks.lookups import Lookups
from webhooks.review import Found, Lookup
from windowbox.clients.kubernetes import kube
from windowbox.models.refs import CLUSTERS
from windowbox.models.webhooks import Target

_IDLE_IN_GO = 92.0
"""Go's HTTP client closes idle connections after 90 s."""


@pytest.fixture
async def caller(tmp_path: Path) -> AsyncIterator[Caller]:
    async with asked(tmp_path, never) as made:
        yield made


@rule("WF-13", "WF-40", "WF-41", "WF-50")
async def test_a_review_is_answered_over_tls(caller: Caller) -> None:
    status, answer = await caller.review()
    assert (status, answer["uid"], answer["allowed"]) == (200, UID, True)
    capacity = mutated(NODE, answer)["status"]["capacity"]
    assert capacity == {"cpu": "100", "memory": "100Gi", "pods": "110"}
    assert [decision.review.name for decision in caller.notes.kept] == ["one"]


@rule("WF-40")
@cases(
    "body content code message",
    ("content-type", b"{}", "text/plain", 400, "contentType=text/plain, expected application/json"),
    (
        "size",
        *(b" " * (7 * 1024 * 1024 + 1), "application/json", 413),
        "request entity is too large: limit is 7340032 bytes",
    ),
    (
        "parts",
        *(b"[" + b"[]," * 250_000 + b"[]]", "application/json", 413),
        "request entity is too large: limit is 500000 signs of [{:,",
    ),
)
async def test_an_unreadable_request_is_answered_with_its_code(
    caller: Caller, body: bytes, content: str, code: int, message: str
) -> None:
    status, answer = await caller.ask("/node", body, content)
    found = response(answer)["status"]
    assert (status, found["code"], found["message"]) == (200, code, message)


async def test_a_compressed_body_is_not_unpacked(caller: Caller) -> None:
    packed = gzip.compress(orjson.dumps(admission_review(NODE, "nodes")))
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    async with caller.session.post(f"{caller.url}/node", data=packed, headers=headers) as answer:
        found = response(await answer.read())["status"]
    assert found["code"] == 400
    assert found["message"].startswith("the body is not JSON")


async def test_a_big_object_does_not_delay_others(caller: Caller) -> None:
    big = {**NODE, "metadata": {"name": "big"}, "spec": {"taints": [{"key": str(i)} for i in range(150_000)]}}
    long = asyncio.create_task(caller.review("/node", big))
    await caller.review()
    _, answer = await long
    assert answer["allowed"]


async def test_a_path_that_no_webhook_has_is_not_found(caller: Caller) -> None:
    status, _ = await caller.ask("/elsewhere", b"{}")
    assert status == 404


async def test_clients_without_tls_do_not_disturb_others(caller: Caller) -> None:
    host, _, port = caller.url.removeprefix("https://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /node HTTP/1.1\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    assert (await caller.review())[0] == 200


async def test_requests_without_a_body_take_no_place(caller: Caller) -> None:
    await asyncio.gather(*(caller.begin("/node", size=100, seconds=30) for _ in range(300)))
    assert await allowed(caller)


async def test_callers_that_break_off_are_not_logged_as_errors(
    caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    await caller.begin("/node", size=100, seconds=5)
    while not caller.server._connections._server.requests_count:  # noqa: ASYNC110
        await asyncio.sleep(0.01)  # no event shows that the server reads
    caller.begun.pop().transport.abort()
    while len(caller.server._connections):  # noqa: ASYNC110
        # Nor that it has ended the connection.
        await asyncio.sleep(0.01)
    await caller.review()
    assert caplog.text == ""


async def test_late_answers_leave_the_failure_policy_to_the_api_server(caller: Caller) -> None:
    ignored = await caller.begin("/node", size=100, seconds=1)
    refused = await caller.begin("/shoot", size=100, seconds=1)
    assert (await ignored.readline()).split()[1] == b"504"
    assert (await refused.readline()).split()[1] == b"504"


async def test_a_late_lookup_is_a_failed_call(caller: Caller) -> None:
    late = (504, b"the webhook could not answer in time")
    assert await caller.review("/controlplane", MANAGER, seconds=1) == late


async def test_large_bodies_beyond_the_bound_are_refused_and_small_ones_read(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_HELD", 1 << 20)
    status, body = await caller.ask("/shoot", b" " * (2 << 20))
    assert (status, body) == (429, b"the webhook has too many large requests")
    assert await allowed(caller)


async def test_a_flood_of_one_target_does_not_starve_another(caller: Caller) -> None:
    big = resource("v1 ConfigMap", "one", "kube-system", data={"config.yaml": " " * 20_000})
    flood = [asyncio.create_task(caller.review("/shoot", big, seconds=30)) for _ in range(80)]
    room = caller.server._bulkheads[Target.SHOOT].room
    while not room.locked():  # noqa: ASYNC110
        # No event shows that the last place is taken.
        await asyncio.sleep(0.01)
    annotations = {"annotations": {"a": "b" * 200_000}}
    spec: Json = {"template": {"metadata": {}}}
    large = resource("apps/v1 Deployment", "kube-scheduler", "one", metadata=annotations, spec=spec)
    assert await allowed(caller, "/networkpolicy", NETWORK_POLICY)
    assert await allowed(caller, "/controlplane", large)
    assert not any(one.done() for one in flood)
    caller.released.set()
    assert {status for status, _ in await asyncio.gather(*flood)} == {200}


async def test_lookups_that_take_long_take_no_place(tmp_path: Path) -> None:
    looking, many = 0, asyncio.Event()

    async def slow(wanted: Lookup, seconds: float) -> Found:
        nonlocal looking
        looking += 1
        if looking == 64:
            many.set()
        return await never(wanted, seconds)

    scheduler = resource("apps/v1 Deployment", "kube-scheduler", "one", spec={})
    async with asked(tmp_path, slow) as caller:
        late = [asyncio.create_task(caller.review("/controlplane", MANAGER, seconds=30)) for _ in range(80)]
        await many.wait()
        assert await allowed(caller, "/controlplane", scheduler)
        for one in late:
            one.cancel()
        await asyncio.wait(late)


async def test_the_oldest_idle_connection_makes_room_for_another(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, _, port = caller.url.removeprefix("https://").rpartition(":")
    idle, writer = await asyncio.open_connection(host, int(port), ssl=caller.trust)
    caller.begun.append(writer)
    monkeypatch.setattr(caller.server._connections, "_most", 1)
    assert (await caller.review())[0] == 200
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(60):  # it would be closed as idle after 75 s
            assert await idle.read() == b""


async def test_a_second_call_leaves_no_connection_behind(caller: Caller) -> None:
    asked = orjson.dumps(admission_review(NETWORK_POLICY, "networkpolicies"))
    url, headers = f"{caller.url}/again/networkpolicy", {"Content-Type": "application/json"}
    async with caller.session.post(url, data=asked, headers=headers, ssl=caller.trust) as answer:
        assert response(await answer.read())["allowed"]
        assert answer.headers["Connection"] == "close"


@pytest.mark.long
async def test_a_connection_outlives_the_time_for_which_api_servers_keep_it(caller: Caller) -> None:
    host, _, port = caller.url.removeprefix("https://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=caller.trust)
    body = orjson.dumps(admission_review(NODE, "nodes"))
    head = f"POST /node HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    for idle in (_IDLE_IN_GO, 0.0):
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200")
        await reader.readexactly(int(answer.partition(b"Content-Length: ")[2].split()[0]))
        # Nothing happens in a connection that is idle: what is shown is that it does not end.
        await asyncio.sleep(idle)
    writer.close()


async def test_a_lookup_under_way_is_answered_though_the_server_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_GRACE", 0.05)
    began = asyncio.Event()

    async def slow(_: Lookup, seconds: float) -> Found:
        began.set()
        # The server ends meanwhile.
        await asyncio.sleep(1)
        return Found(None, "it is gone")

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector()) as session:
        async with asked(tmp_path, slow) as caller:
            mine = Caller(caller.url, session, caller.notes, caller.trust, caller.server, caller.released)
            asking = asyncio.create_task(mine.review("/controlplane", MANAGER))
            await began.wait()
        _, answer = await asking
    assert "it is gone" in answer["status"]["message"]


_SLOW, _OTHER = Lookup(CLUSTERS, "", "slow"), Lookup(CLUSTERS, "", "other")


async def test_a_slow_object_takes_one_request_and_others_are_found(tmp_path: Path) -> None:
    asked, released = Counter[str](), asyncio.Event()

    async def get(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        asked[name] += 1
        if name == "slow":
            await released.wait()
        return web.json_response({"metadata": {"name": name}})

    async with looking(tmp_path, get) as looked:
        waiting = [asyncio.create_task(looked.look(_SLOW, 60)) for _ in range(100)]
        late = await looked.look(_SLOW, 0.1)
        assert (await looked.look(_OTHER, 60)).object is not None
        released.set()
        found = await asyncio.gather(*waiting)
    assert late == Found(None, 'clusters.extensions.gardener.cloud "slow": the API is too slow')
    assert all(one.object is not None for one in found)
    assert asked == {"slow": 1, "other": 1}


async def test_a_later_caller_does_not_fail_with_an_old_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookups, "_API_PATIENCE", 1.0)
    asked = Counter[str]()

    async def get(request: web.Request) -> web.Response:
        asked["all"] += 1
        if asked["all"] == 1:
            await asyncio.Event().wait()
        return web.json_response({"metadata": {"name": "slow"}})

    async with looking(tmp_path, get) as looked:
        both = await asyncio.gather(looked.look(_SLOW, 0.5), looked.look(_SLOW, 60))
    assert [one.object is not None for one in both] == [False, True]


async def test_an_abandoned_lookup_takes_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "_MOST", 50)

    async def get(request: web.Request) -> web.Response:
        if request.match_info["name"] != "other":
            await asyncio.Event().wait()
        return web.json_response({"metadata": {"name": "other"}})

    async with looking(tmp_path, get) as looked:
        many = [Lookup(CLUSTERS, "", f"slow-{number}") for number in range(60)]
        waiting = [asyncio.create_task(looked.look(one, 60)) for one in many]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        refused = [one.result() for one in waiting if one.done()]
        assert len(refused) == 10
        assert all("too much is looked up" in one.failure for one in refused)
        for one in waiting:
            one.cancel()
        await asyncio.wait(waiting)
        assert (await looked.look(_OTHER, 60)).object is not None
        assert looked._requests == {}


@contextlib.asynccontextmanager
async def looking(
    folder: Path, get: Callable[[web.Request], Awaitable[web.Response]]
) -> AsyncIterator[Lookups]:
    """Look-ups in a server that answers by `get`."""
    every = web.get("/one/apis/{group}/{version}/clusters/{name}", get)
    async with webserver.serving(every) as url:
        (folder / "kubeconfig").write_text(apiservers.kubeconfig(url, "one"))
        async with kube.from_file(folder / "kubeconfig") as opened:
            yield Lookups(opened, lambda: None, frozenset())
