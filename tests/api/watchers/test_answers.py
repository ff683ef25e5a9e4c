"""Responses that are too large or malformed are refused within the limits of memory and time."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import itertools
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson
import pytest
from aiohttp import web

from bus.transport.connection import Bus
from tests.api.watchers.conftest import Records, heard, knows, serving
from tests.api.watchers.test_mirror import mirror
from tests.support import loopback
from tests.support.cases import cases
from tests.support.proxy import proxy
from tests.support.running import eventually, running, soon
from tests.support.servers import ControlPlane
from watchers.limits import Shared
from watchers.mirror import Mirror
from windowbox.clients.kubernetes import apiresponses, kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import TooLarge, Unreachable
from windowbox.models.refs import CERTIFICATE_REQUESTS, DNSRECORDS, NODES, Resource

MIB = 1 << 20
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def tenant(answer: Answer) -> AsyncIterator[Kube]:
    """A client for a cluster whose kubeconfig was in a Secret, and whose server answers as it likes."""
    async with (
        serving(answer) as kubeconfig,
        kube.from_text(kubeconfig.encode(), "it", loopback.EGRESS) as opened,
    ):
        yield opened


def giving(listing: bytes, lines: bytes = b"", status: int = 200) -> Answer:
    """Gives this page to everybody, or these lines to those who watch."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=lines if lines and "watch" in request.query else listing, status=status)

    return answer


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


async def test_compressed_responses_are_neither_requested_nor_read() -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.headers["Accept-Encoding"])
        bomb = gzip.compress(b'{"metadata": {}, "items": [' + b" " * 100 * MIB + b"]}", 1)
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    async with tenant(answer) as client:
        with pytest.raises(Unreachable, match="compressed"):
            await client.page(DNSRECORDS)
    assert asked == ["identity"]


@cases("announced", ("length-announced", True), ("chunked", False))
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
    async with tenant(giving(b"x" * MIB, status=500)) as client:
        for asked in (client.get(DNSRECORDS, "n", "r"), watched(client)):
            with pytest.raises(TooLarge, match="65,536 bytes"):
                await asked


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
            assert live._known.existing == 20
    assert limits[:4] == [80, 20, 5, 5]


async def test_a_listing_that_never_ends_is_given_up(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, objects=10)
    async with tenant(giving(listing(more="more"))) as client:
        with pytest.raises(TooLarge, match=r"list dnsrecords.*: more than 10 objects"):
            await soon(Mirror(bus, client, "tenant", DNSRECORDS, Shared(bus)).run())


async def test_a_watch_that_brings_ever_more_is_given_up(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, objects=10)
    async with tenant(giving(listing(), b"".join(map(word, range(1000))))) as client:
        with pytest.raises(TooLarge, match="tenant has more than 10"):
            await soon(Mirror(bus, client, "tenant", DNSRECORDS, Shared(bus)).run())


@pytest.mark.parametrize(
    "metadata",
    [
        *({"name": name} for name in ("", "x" * 254, "a/b", "A", "a\n")),
        *({"namespace": name} for name in ("n" * 64, "", "a.b")),
        *({"uid": uid} for uid in ("u" * 129, "a\r\nb: c")),
        *({"resourceVersion": version} for version in ("1" * 129, 7)),
        *({"labels": labels} for labels in ({"a": 5}, {"a": None})),
        *({"annotations": [5]}, {"finalizers": [{}]}, {"ownerReferences": ["a"]}, {"generation": "x"}),
    ],
    ids=lambda metadata: str(metadata)[:30],
)
async def test_metadata_of_a_wrong_form_or_length_is_refused(metadata: dict[str, Any]) -> None:
    object = record(1)
    object["metadata"] |= metadata
    line = orjson.dumps({"type": "ADDED", "object": object}) + b"\n"
    async with tenant(giving(listing(object), line)) as client:
        for asked in (client.page(DNSRECORDS), watched(client)):
            with pytest.raises(Unreachable, match="not from a Kubernetes API"):
                await asked


@cases(
    "body",
    ("a-web-page", b"<html>"),
    ("a-list", b"[]"),
    ("a-number-as-metadata", b'{"metadata": 5}'),
    ("a-mapping-as-items", b'{"items": {"a": 1}}'),
    ("a-number-as-item", b'{"items": [5]}'),
    ("an-empty-item", b'{"items": [{}]}'),
    ("a-list-as-metadata-of-an-item", b'{"items": [{"metadata": []}]}'),
    ("a-long-continue-token", orjson.dumps({"metadata": {"continue": "c" * 8193}, "items": []})),
    ("a-long-version", orjson.dumps({"metadata": {"resourceVersion": "1" * 129}, "items": []})),
)
async def test_a_page_of_a_wrong_form_is_refused(body: bytes) -> None:
    async with tenant(giving(body)) as client:
        with pytest.raises(Unreachable, match="not from a Kubernetes API"):
            await client.page(DNSRECORDS)


@cases(
    "line",
    ("a-number", b"5"),
    ("nothing", b"{}"),
    ("a-number-as-object", b'{"type": "ADDED", "object": 5}'),
    ("an-empty-object", b'{"type": "ADDED", "object": {}}'),
    ("a-list-as-metadata", b'{"type": "ADDED", "object": {"metadata": []}}'),
    ("words-as-code", b'{"type": "ERROR", "object": {"code": "x"}}'),
    ("a-number-as-type", b'{"type": 5, "object": {"metadata": {"resourceVersion": "1"}}}'),
)
async def test_a_watch_line_of_a_wrong_form_is_refused(line: bytes) -> None:
    async with tenant(giving(b"", line + b"\n")) as client:
        with pytest.raises(Unreachable, match="not from a Kubernetes API"):
            await watched(client)


async def test_responses_with_too_many_parts_are_not_parsed() -> None:
    big = orjson.dumps(record(1) | {"spec": [[]] * 1_300_000})
    async with tenant(giving(big, b'{"type": "ADDED", "object": ' + big + b"}\n")) as client:
        for asked in (client.page(DNSRECORDS), client.get(DNSRECORDS, "n", "r"), watched(client)):
            with little_memory(40 * MIB), pytest.raises(TooLarge, match="200,000 lists and mappings"):
                await asked


async def test_other_tasks_run_while_a_big_response_is_parsed() -> None:
    deep = orjson.loads(b"[" * 150 + b"]" * 150)
    async with tenant(giving(orjson.dumps(record(1) | {"spec": [deep] * 1200}))) as client:
        asking = asyncio.create_task(client.get(DNSRECORDS, "n", "r"))
        moments = [time.perf_counter()]
        while not asking.done():
            await asyncio.sleep(0.001)  # how late it ends is what is measured
            moments.append(time.perf_counter())
        assert len((await asking).raw["spec"]) == 1200
    pauses = [after - before for before, after in itertools.pairwise(moments)]
    assert max(pauses) < 0.7 * sum(pauses)


async def test_a_watch_over_a_stranded_connection_is_restarted(
    bus: Bus, control_plane: ControlPlane, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube, "_SILENCE", 1.0)
    async with proxy(int(control_plane.url.rpartition(":")[2])) as line:
        text, there = control_plane.kubeconfig.read_text(), control_plane.kubeconfig.with_name("proxied")
        there.write_text(text.replace(control_plane.url, f"https://127.0.0.1:{line.port}"))
        async with kube.from_file(there) as far:
            live = mirror(bus, far)
            async with running(live.run()):
                await soon(live.listed.wait())
                await records.create("before")
                await eventually(lambda: knows(bus, records.ref("before"), "ADDED", "10.0.0.1"))
                line.strand()
                await records.create("web")
                await eventually(lambda: knows(bus, records.ref("web"), "ADDED", "10.0.0.1"))
    assert sorted(await heard(bus, records)) == [("ADDED", name, "10.0.0.1") for name in ("before", "web")]


ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")


async def objects(client: Kube) -> list[str]:
    return [one.name async for one in client.objects(DNSRECORDS)]


CALLS: dict[str, Callable[[Kube], Awaitable[Any]]] = {
    "get": lambda client: client.get(DNSRECORDS, "n", "r"),
    "page": lambda client: client.page(DNSRECORDS),
    "objects": objects,
    "watch": watched,
}


def of_size(unit: bytes, size: int = 4 * MIB - 64) -> bytes:
    return unit * (size // len(unit))


@pytest.mark.parametrize("call", CALLS)
@cases(
    "text",
    ("escaped-quotes", b'{"a":"' + of_size(rb"\"")),
    ("backslashes", b'{"a":"' + of_size(b"\\")),
    ("escaped-quotes-behind-brackets", b"[" * 2000 + b'"' + of_size(rb"\"", 4 * MIB - 4096)),
    ("quotes", of_size(b'"')),
    ("brackets-and-quotes", of_size(b"[" * 1025 + b'"', 150_000)),
    ("escapes-of-both-kinds", b'{"a":"' + of_size(b'\\"x\\\\')),
)
async def test_text_that_is_no_json_is_refused_in_linear_time(text: bytes, call: str) -> None:
    async with tenant(saying(text, b"\n")) as client:
        begun = time.process_time()
        with pytest.raises(Unreachable, match="not from a Kubernetes API"):
            await CALLS[call](client)
        # Some 0.1 s; a regular expression that backtracked took minutes for a hundredth of it.
        assert time.process_time() - begun < 5


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@cases(
    "name",
    ("plain", rb"plain"),
    ("quote", rb"quote \" and [["),
    ("backslash-at-the-end", rb"backslash \\"),
    ("backslash-and-quote", rb"\\\" both {{"),
)
def test_only_the_part_that_is_too_deep_becomes_null(name: bytes) -> None:
    text = b'{"a": "' + name + b'", "deep": ' + nested(5000) + b', "b": {"c": [1, "]"]}}'
    found = apiresponses.shallowly_decoded("it", text)
    assert found["a"] == orjson.loads(b'"' + name + b'"')
    assert found["b"] == {"c": [1, "]"]}
    depth, inner = 0, found["deep"]
    while inner:
        depth, inner = depth + 1, inner[0]
    assert 90 < depth < 110


async def test_a_deep_object_of_a_listing_is_cut_and_its_neighbours_stay_whole() -> None:
    deep = orjson.dumps(record(2)).replace(b'"padding":""', b'"padding":' + nested(900))

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=listing(record(1, 5), record(3, 5)).replace(b"},{", b"}," + deep + b",{"))

    async with tenant(answer) as client:
        found = {one.name: one async for one in client.objects(DNSRECORDS)}
    assert list(found) == ["r1", "r2", "r3"]
    assert found["r3"].spec == {"padding": "xxxxx"}
    assert len(repr(found["r2"].raw)) < 500  # and repr, as any other recursion, comes to an end


def pages(*items: dict[str, Any]) -> Answer:
    """Pages without end, each with these objects."""
    numbers = itertools.count()

    async def answer(request: web.Request) -> web.Response:
        number = next(numbers)
        assert request.query.get("continue", "0") == str(number)
        return web.Response(body=listing(*items, more=str(number + 1)))

    return answer


@cases(
    "items limits problem",
    ("full-pages", [record(1)], {"objects": 50}, "more than 50 objects"),
    ("empty-pages", [], {"objects": 50}, "more than 50 objects"),
    ("big-pages", [record(1, MIB)], {"size": 20 * MIB}, "more than 20,971,520 bytes"),
)
async def test_a_listing_without_an_end_is_given_up(
    items: list[dict[str, Any]], limits: dict[str, int], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, **limits)
    async with tenant(pages(*items)) as client:
        with little_memory(80 * MIB), pytest.raises(TooLarge, match=problem):
            async for _ in client.objects(DNSRECORDS):
                pass


async def test_a_listing_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, seconds=0.0)
    async with tenant(pages(record(1))) as client:
        with pytest.raises(Unreachable, match="not listed within 0 s"):
            await objects(client)


def named(resource: Resource, name: str) -> dict[str, Any]:
    metadata = {"name": name, "uid": "u", "resourceVersion": "1"}
    return {"metadata": metadata | ({"namespace": "n"} if resource.namespaced else {})}


@cases(
    "resource name",
    ("kubelet", CERTIFICATE_REQUESTS, "node-csr-GccQFgQqNWvmwYG_dse6-OjvuNPmMRfzJuyHYqO6eGg"),
    ("kubelet-server", CERTIFICATE_REQUESTS, "csr-8b29x"),
    ("any-segment", CERTIFICATE_REQUESTS, "Ann's request: 100 ?\n"),
    ("role", ROLES, "system:controller:bootstrap-signer"),
    ("node", NODES, "ip-10-0-0-1.eu-west-1.compute.internal"),
)
async def test_names_follow_the_rule_of_their_resource(resource: Resource, name: str) -> None:
    async with tenant(saying(listing(named(resource, name)))) as client:
        assert [one.name async for one in client.objects(resource)] == [name]


@cases(
    "resource name",
    ("node", NODES, "node-csr-Gcc_Q"),
    ("dots", CERTIFICATE_REQUESTS, ".."),
    ("path", CERTIFICATE_REQUESTS, "a/b"),
    ("escaped-path", CERTIFICATE_REQUESTS, "a%2fb"),
    ("nothing", CERTIFICATE_REQUESTS, ""),
)
async def test_names_against_the_rule_of_their_resource_are_refused(resource: Resource, name: str) -> None:
    async with tenant(saying(listing(named(resource, name)))) as client:
        with pytest.raises(Unreachable, match="not from a Kubernetes API"):
            await client.page(resource)
