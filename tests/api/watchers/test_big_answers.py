"""Answers that are too much: nobody holds more of them than the limits allow."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import itertools
import json
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson
import pytest
import yaml
from aiohttp import web

from bus.transport.connection import Bus
from tests.api.watchers.conftest import Records, heard, knows
from tests.api.watchers.test_mirror import mirror
from tests.support import loopback
from tests.support.proxy import proxy
from tests.support.running import eventually, running, soon
from tests.support.servers import ControlPlane
from watchers.limits import Shared
from watchers.mirror import Mirror
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import TooLarge, Unreachable
from windowbox.models.refs import DNSRECORDS

MIB = 1 << 20
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def tenant(answer: Answer) -> AsyncIterator[Kube]:
    """A client for a cluster whose kubeconfig was in a Secret, and whose server answers as it likes."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    content = {
        "clusters": [{"name": "a", "cluster": {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}}],
        "users": [{"name": "a", "user": {"token": "t"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    try:
        async with kube.from_text(yaml.safe_dump(content).encode(), "it", loopback.EGRESS) as opened:
            yield opened
    finally:
        await runner.cleanup()


def record(number: int, size: int = 0) -> dict[str, Any]:
    metadata = {"name": f"r{number}", "namespace": "n", "uid": f"u{number}", "resourceVersion": str(number)}
    return {"metadata": metadata, "spec": {"padding": "x" * size}}


def listing(*items: dict[str, Any], more: str = "") -> bytes:
    return orjson.dumps({"metadata": {"resourceVersion": "1", "continue": more}, "items": items})


def allow(monkeypatch: pytest.MonkeyPatch, **listing: Any) -> None:
    """Smaller limits for a listing."""
    smaller = kube.TENANT.listing._replace(**listing)
    monkeypatch.setattr(kube, "TENANT", kube.TENANT._replace(listing=smaller))


@contextlib.contextmanager
def little_memory(most: int) -> Any:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


async def test_nothing_compressed_is_asked_for_or_read() -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.headers["Accept-Encoding"])
        bomb = gzip.compress(b'{"metadata": {}, "items": [' + b" " * 300 * MIB + b"]}", 1)
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    async with tenant(answer) as client:
        with pytest.raises(Unreachable, match="compressed"):
            await client.page(DNSRECORDS)
    assert asked == ["identity"]


@pytest.mark.parametrize("announced", [True, False], ids=["length-announced", "chunked"])
async def test_a_page_is_read_no_further_than_it_may_be_long(announced: bool) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if announced:
            response.content_length = 100 * MIB
        await response.prepare(request)
        with contextlib.suppress(OSError):
            for _ in range(100):
                await response.write(b" " * MIB)
        return response

    async with tenant(answer) as client:
        with little_memory(40 * MIB), pytest.raises(TooLarge, match=r"dnsrecords: .* 8,388,608 bytes"):
            await client.page(DNSRECORDS)
        with little_memory(40 * MIB), pytest.raises(TooLarge, match="4,194,304 bytes"):
            await client.get(DNSRECORDS, "n", "r")


async def test_an_error_body_is_read_up_to_a_limit() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=500, body=b"x" * MIB)

    async with tenant(answer) as client:
        with pytest.raises(TooLarge, match="65,536 bytes"):
            await client.get(DNSRECORDS, "n", "r")
        with pytest.raises(TooLarge, match="65,536 bytes"):
            async for _ in client.watch(DNSRECORDS, "1"):
                pass


async def watched(client: Kube) -> list[str]:
    return [e.object["metadata"]["name"] async for batch in client.watch(DNSRECORDS, "1") for e in batch]


def word(number: int, size: int = 0) -> bytes:
    return orjson.dumps({"type": "ADDED", "object": record(number, size)}) + b"\n"


def saying(*parts: bytes) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(OSError):
            for part in parts:
                await response.write(part)
        return response

    return answer


async def test_a_watch_line_is_read_up_to_a_limit() -> None:
    async with tenant(saying(word(1), *[b'"' * MIB] * 60)) as client:
        with little_memory(40 * MIB), pytest.raises(TooLarge, match=r"watch dnsrecords.* 4,194,304 bytes"):
            await watched(client)


async def test_a_long_line_is_put_together_in_linear_time() -> None:
    line = word(1, 3 * MIB)
    tiny = [line[start : start + 512] for start in range(0, len(line), 512)]
    async with tenant(saying(*tiny, word(2))) as client:
        began = time.process_time()
        assert await watched(client) == ["r1", "r2"]
        assert time.process_time() - began < 5


async def test_lines_come_whole_however_they_were_cut() -> None:
    text = b"".join(word(number) for number in range(50))
    for size in (1, 7, len(word(0)), 300):
        parts = [text[start : start + size] for start in range(0, len(text), size)]
        async with tenant(saying(*parts)) as client:
            assert await watched(client) == [f"r{number}" for number in range(50)]


async def test_too_large_pages_are_listed_in_smaller_ones(bus: Bus) -> None:
    there = [record(number, MIB) for number in range(20)]
    limits: list[int] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return web.Response(text="")
        first, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        limits.append(limit)
        more = str(first + limit) if first + limit < len(there) else ""
        return web.Response(body=listing(*there[first : first + limit], more=more))

    async with tenant(answer) as client:
        live = Mirror(bus, client, "tenant", DNSRECORDS, Shared(bus), page=80)
        async with running(live.run()):
            await soon(live.listed.wait())
            assert len(live._known) == 20
    assert limits[:4] == [80, 20, 5, 5]


async def test_a_listing_that_never_ends_is_given_up(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, objects=10)

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=listing(more="more"))

    async with tenant(answer) as client:
        with pytest.raises(TooLarge, match=r"list dnsrecords.*: more than 10 objects"):
            await soon(Mirror(bus, client, "tenant", DNSRECORDS, Shared(bus)).run())


async def test_a_watch_that_brings_ever_more_is_given_up(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, objects=10)

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.Response(body=listing())
        return web.Response(body=b"".join(word(number) for number in range(1000)))

    async with tenant(answer) as client:
        with pytest.raises(TooLarge, match="tenant has more than 10"):
            await soon(Mirror(bus, client, "tenant", DNSRECORDS, Shared(bus)).run())


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"name": ""}, id="no-name"),
        pytest.param({"name": "x" * 254}, id="long-name"),
        pytest.param({"name": "a/b"}, id="path-as-name"),
        pytest.param({"name": "A"}, id="upper-case"),
        pytest.param({"name": "a\n"}, id="line-break"),
        pytest.param({"namespace": "n" * 64}, id="long-namespace"),
        pytest.param({"namespace": ""}, id="no-namespace"),
        pytest.param({"namespace": "a.b"}, id="dots-in-namespace"),
        pytest.param({"uid": "u" * 129}, id="long-uid"),
        pytest.param({"resourceVersion": "1" * 129}, id="long-version"),
        pytest.param({"labels": {"a": 5}}, id="number-as-label"),
        pytest.param({"labels": {"a": None}}, id="null-as-label"),
        pytest.param({"finalizers": [{}]}, id="mapping-as-finalizer"),
        pytest.param({"ownerReferences": ["a"]}, id="words-as-owner"),
    ],
)
async def test_metadata_of_a_wrong_form_or_length_is_refused(metadata: dict[str, Any]) -> None:
    object = record(1)
    object["metadata"] |= metadata

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return web.Response(body=json.dumps({"type": "ADDED", "object": object}).encode() + b"\n")
        return web.Response(body=listing(object))

    async with tenant(answer) as client:
        with pytest.raises(Unreachable, match="not from a Kubernetes API"):
            await client.page(DNSRECORDS)
        with pytest.raises(Unreachable, match="not from a Kubernetes API"):
            await watched(client)


@pytest.mark.parametrize("metadata", [{"continue": "c" * 8193}, {"resourceVersion": "1" * 129}])
async def test_the_place_of_a_page_is_short(metadata: dict[str, str]) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=orjson.dumps({"metadata": metadata, "items": []}))

    async with tenant(answer) as client:
        with pytest.raises(Unreachable, match="not from a Kubernetes API"):
            await client.page(DNSRECORDS)


async def test_what_would_be_much_more_in_memory_is_not_taken_apart() -> None:
    big = orjson.dumps(record(1) | {"spec": [[]] * 1_300_000})

    async def answer(request: web.Request) -> web.Response:
        if "watch" in request.query:
            return web.Response(body=b'{"type": "ADDED", "object": ' + big + b"}\n")
        return web.Response(body=big)

    async with tenant(answer) as client:
        for asked in (client.page(DNSRECORDS), client.get(DNSRECORDS, "n", "r"), watched(client)):
            with little_memory(40 * MIB), pytest.raises(TooLarge, match="200,000 lists and mappings"):
                await asked


async def test_while_a_big_answer_is_taken_apart_others_go_on() -> None:
    deep = orjson.loads(b"[" * 150 + b"]" * 150)
    text = orjson.dumps(record(1) | {"spec": [deep] * 1200})

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=text)

    async with tenant(answer) as client:
        asking = asyncio.create_task(client.get(DNSRECORDS, "n", "r"))
        moments = [time.perf_counter()]
        while not asking.done():
            await asyncio.sleep(0.001)  # how late it ends is what is measured
            moments.append(time.perf_counter())
        assert len((await asking).raw["spec"]) == 1200
    pauses = [after - before for before, after in itertools.pairwise(moments)]
    assert max(pauses) < 0.7 * sum(pauses)


async def test_a_watch_over_a_stranded_connection_is_begun_anew(
    bus: Bus, control_plane: ControlPlane, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube, "_SILENCE", 1.0)
    async with proxy(int(control_plane.url.rpartition(":")[2])) as line:
        text = control_plane.kubeconfig.read_text().replace(
            control_plane.url, f"https://127.0.0.1:{line.port}"
        )
        there = control_plane.kubeconfig.with_name("proxied.kubeconfig")
        there.write_text(text)
        async with kube.from_file(there) as far:
            live = mirror(bus, far)
            async with running(live.run()):
                await soon(live.listed.wait())
                await records.create("before")
                await eventually(lambda: knows(bus, records.ref("before"), "ADDED", "10.0.0.1"))
                line.strand()
                await records.create("web")
                await eventually(lambda: knows(bus, records.ref("web"), "ADDED", "10.0.0.1"))
    assert sorted(await heard(bus, records)) == [
        ("ADDED", "before", "10.0.0.1"),
        ("ADDED", "web", "10.0.0.1"),
    ]
