"""Egress: addresses that kubeconfigs in Secrets may not lead to, and the policies for Pods."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import pytest_asyncio
import yaml
from aiohttp import web

from sandbox import processes
from tests.api.providers.tenants import liar
from tests.support import loopback, webserver
from tests.support.proxy import Proxy, proxy
from tests.support.servers import ControlPlane
from tests.support.tenantconfigs import naming
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.egress import ALWAYS_DENIED, Egress
from windowbox.errors import Unreachable, WindowboxError
from windowbox.models.refs import NAMESPACES

POLICIES = Path(__file__).parents[3] / "deploy" / "networkpolicies.yaml"
NEUTRAL = "no usable connection to the API server that the kubeconfig names"


async def reported(kubeconfig: bytes, egress: Egress) -> str:
    """The error that the author of the kubeconfig reads, the same for a request and for a watch."""
    async with kube.from_text(kubeconfig, "it", egress) as opened:
        with pytest.raises(Unreachable) as failed:
            await opened.version()
        with pytest.raises(Unreachable) as watching:
            async for _ in opened.watch(NAMESPACES, "1"):
                pass
    assert str(watching.value) == "watch namespaces: " + str(failed.value).removeprefix("get /version: ")
    return str(failed.value)


@pytest_asyncio.fixture
async def internal() -> AsyncIterator[Proxy]:
    """A server on loopback, and how many connections to it were opened."""

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"gitVersion": "v1"})

    every, tls = web.route("*", "/{path:.*}", answer), webserver.identity().tls
    async with webserver.serving(every, tls=tls) as url, proxy(urlsplit(url).port or 0) as made:
        yield made


def of_ours(server: str, **cluster: str) -> bytes:
    """A kubeconfig that trusts our servers."""
    authority = base64.b64encode(webserver.identity().authority).decode()
    return naming(server, {"certificate-authority-data": authority, **cluster})


async def reaches(kubeconfig: bytes) -> bool:
    """Whether a process that may connect to loopback reaches the server."""
    async with kube.from_text(kubeconfig, "it", loopback.EGRESS) as opened:
        return await opened.version() == "v1"


@pytest.mark.parametrize("name", ["localhost", "①27.0.0.1"])
async def test_names_that_lead_to_denied_addresses_are_not_connected_to(
    internal: Proxy, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    kubeconfig = of_ours(f"https://{name}:{internal.port}")
    assert await reported(kubeconfig, Egress()) == f"get /version: {NEUTRAL}"
    assert internal.opened == 0
    assert "denied by egress settings" in caplog.text
    assert await reaches(kubeconfig)


@pytest.mark.parametrize("name", ["127.1", "2130706433", "127.0.0.1%25lo"])
async def test_addresses_of_an_unusual_form_are_not_connected_to(internal: Proxy, name: str) -> None:
    with contextlib.suppress(WindowboxError):
        await reported(of_ours(f"https://{name}:{internal.port}"), Egress())
    assert internal.opened == 0


async def test_a_proxy_name_resolving_to_denied_addresses_fails(internal: Proxy) -> None:
    kubeconfig = of_ours("https://192.0.2.1", **{"proxy-url": f"http://localhost:{internal.port}"})
    assert NEUTRAL in await reported(kubeconfig, Egress())
    assert internal.opened == 0
    assert NEUTRAL in await reported(kubeconfig, loopback.EGRESS)
    assert internal.opened > 0


async def test_the_address_that_was_checked_is_the_one_connected_to(
    internal: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that leads elsewhere when it is looked up again."""
    permitted = Egress((), (ip_network("127.0.0.2/32"),))
    given = iter(["127.0.0.2", "127.0.0.1", "127.0.0.1"])
    asked: list[str] = []

    async def resolve(_: Any, host: str, port: int, family: int) -> list[dict[str, Any]]:
        asked.append(host)
        found = {"hostname": host, "host": next(given), "port": port}
        return [{**found, "family": socket.AF_INET, "proto": 0, "flags": 0}]

    monkeypatch.setattr(aiohttp.DefaultResolver, "resolve", resolve)
    for _ in range(3):
        async with kube.from_text(of_ours(f"https://rebinding:{internal.port}"), "it", permitted) as opened:
            with pytest.raises(Unreachable, match=NEUTRAL):
                await opened.version()
    assert asked == ["rebinding"] * 3
    assert internal.opened == 0


async def talking(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer before any question, and not by TLS."""
    writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\n\r\nsecret")
    await writer.drain()
    writer.close()


async def test_unproven_servers_are_reported_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube, "_LIMIT", aiohttp.ClientTimeout(total=0.5))
    monkeypatch.setattr(kube, "_SILENCE", 0.5)
    servers = [f"https://127.0.0.1:{processes.free_port()}", "https://localhost:1"]
    async with contextlib.AsyncExitStack() as stack:
        servers.append((await stack.enter_async_context(liar(tmp_path, "uid"))).url)
        for answer in (lambda *_: None, talking):
            server = await stack.enter_async_context(await asyncio.start_server(answer, "127.0.0.1", 0))
            servers.append(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        through = {"proxy-url": servers[-1].replace("https", "http")}
        kubeconfigs = [*map(of_ours, servers), of_ours("https://127.0.0.1:1", **through)]
        assert {await reported(one, loopback.EGRESS) for one in kubeconfigs} == {f"get /version: {NEUTRAL}"}


def policies() -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(POLICIES.read_text()) if one["kind"] == "NetworkPolicy"]


def test_an_api_server_takes_the_policies(plane: ControlPlane) -> None:
    plane.api.apply("/api/v1/namespaces/windowbox-system", next(yaml.safe_load_all(POLICIES.read_text())))
    for policy in policies():
        name = policy["metadata"]["name"]
        path = f"/apis/networking.k8s.io/v1/namespaces/windowbox-system/networkpolicies/{name}"
        plane.api.apply(path, policy)


def test_policies_except_the_addresses_that_are_always_denied() -> None:
    rules = [rule for policy in policies() for rule in policy["spec"]["egress"]]
    blocks = [to["ipBlock"] for rule in rules for to in rule["to"] if "ipBlock" in to]
    wide = {one["cidr"]: [ip_network(net) for net in one["except"]] for one in blocks if "except" in one}
    assert set(wide) == {"0.0.0.0/0", "::/0"}
    assert all(ip_network(b["cidr"]).num_addresses == 1 for b in blocks if "except" not in b)
    for denied in ALWAYS_DENIED:
        excepted = wide["0.0.0.0/0" if denied.version == 4 else "::/0"]
        assert any(denied.subnet_of(one) for one in excepted), denied  # type: ignore[arg-type]
