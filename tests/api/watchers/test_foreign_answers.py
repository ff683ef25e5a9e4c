"""Answers that cost a parser more than their size tells, and listings that never end."""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest
from aiohttp import web

from tests.api.watchers.test_big_answers import (
    MIB,
    Answer,
    allow,
    listing,
    little_memory,
    record,
    saying,
    tenant,
    watched,
)
from windowbox.clients.kubernetes import apiresponses
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import TooLarge, Unreachable
from windowbox.models.refs import CERTIFICATE_REQUESTS, DNSRECORDS, NODES, Resource

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
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b'{"a":"' + of_size(rb"\""), id="escaped-quotes"),
        pytest.param(b'{"a":"' + of_size(b"\\"), id="backslashes"),
        pytest.param(
            b"[" * 2000 + b'"' + of_size(rb"\"", 4 * MIB - 4096), id="escaped-quotes-behind-brackets"
        ),
        pytest.param(of_size(b'"'), id="quotes"),
        pytest.param(of_size(b"[" * 1025 + b'"', 150_000), id="brackets-and-quotes"),
        pytest.param(b'{"a":"' + of_size(b'\\"x\\\\'), id="escapes-of-both-kinds"),
    ],
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


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(rb"plain", id="plain"),
        pytest.param(rb"quote \" and [[", id="quote"),
        pytest.param(rb"backslash \\", id="backslash-at-the-end"),
        pytest.param(rb"\\\" both {{", id="backslash-and-quote"),
    ],
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


@pytest.mark.parametrize(
    ("items", "limits", "problem"),
    [
        pytest.param([record(1)], {"objects": 50}, "more than 50 objects", id="full-pages"),
        pytest.param([], {"objects": 50}, "more than 50 objects", id="empty-pages"),
        pytest.param([record(1, MIB)], {"size": 20 * MIB}, "more than 20,971,520 bytes", id="big-pages"),
    ],
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


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        pytest.param(
            CERTIFICATE_REQUESTS, "node-csr-GccQFgQqNWvmwYG_dse6-OjvuNPmMRfzJuyHYqO6eGg", id="kubelet"
        ),
        pytest.param(CERTIFICATE_REQUESTS, "csr-8b29x", id="kubelet-server"),
        pytest.param(CERTIFICATE_REQUESTS, "Ann's request: 100 ?\n", id="any-segment"),
        pytest.param(ROLES, "system:controller:bootstrap-signer", id="role"),
        pytest.param(NODES, "ip-10-0-0-1.eu-west-1.compute.internal", id="node"),
    ],
)
async def test_names_follow_the_rule_of_their_resource(resource: Resource, name: str) -> None:
    async with tenant(saying(listing(named(resource, name)))) as client:
        assert [one.name async for one in client.objects(resource)] == [name]


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        pytest.param(NODES, "node-csr-Gcc_Q", id="node"),
        pytest.param(CERTIFICATE_REQUESTS, "..", id="dots"),
        pytest.param(CERTIFICATE_REQUESTS, "a/b", id="path"),
        pytest.param(CERTIFICATE_REQUESTS, "a%2fb", id="escaped-path"),
        pytest.param(CERTIFICATE_REQUESTS, "", id="nothing"),
    ],
)
async def test_names_against_the_rule_of_their_resource_are_refused(resource: Resource, name: str) -> None:
    async with tenant(saying(listing(named(resource, name)))) as client:
        with pytest.raises(Unreachable, match="not from a Kubernetes API"):
            await client.page(resource)
