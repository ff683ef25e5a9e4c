"""Where kubeconfigs in Secrets lead, and what their authors learn of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web

from sandbox import processes
from tests.api.providers.liar import liar
from tests.support import loopback
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.egress import Egress
from windowbox.errors import Unreachable, WindowboxError
from windowbox.models.refs import NAMESPACES

NEUTRAL = "no usable connection to the API server that the kubeconfig names"


def of(server: str, **cluster: Any) -> bytes:
    content = {
        "clusters": [{"name": "a", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "a", "user": {"token": "t"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    return yaml.safe_dump(content).encode()


async def told(kubeconfig: bytes, egress: Egress) -> str:
    """What the author of the kubeconfig is told, be it used for a request or for a watch."""
    async with kube.from_text(kubeconfig, "it", egress) as opened:
        with pytest.raises(Unreachable) as failed:
            await opened.version()
        with pytest.raises(Unreachable) as watching:
            async for _ in opened.watch(NAMESPACES, "1"):
                pass
    assert str(watching.value) == "watch namespaces: " + str(failed.value).removeprefix("get /version: ")
    return str(failed.value)


class Listener:
    """Something on loopback that notes who comes."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.requests: list[str] = []


@contextlib.asynccontextmanager
async def listener() -> AsyncIterator[Listener]:
    async def answer(request: web.Request) -> web.Response:
        made.requests.append(request.path_qs)
        return web.json_response({"gitVersion": "v1"})

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made = Listener(runner.addresses[0][1])
    try:
        yield made
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("name", ["localhost", "①27.0.0.1"])
async def test_names_that_lead_to_denied_addresses_are_not_connected_to(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with listener() as internal:
        server = f"http://{name}:{internal.port}"
        assert await told(of(server), Egress()) == f"get /version: {NEUTRAL}"
        assert internal.requests == []
        assert "denied by egress settings" in caplog.text
        async with kube.from_text(of(server), "it", loopback.EGRESS) as opened:
            assert await opened.version() == "v1"


@pytest.mark.parametrize("name", ["127.1", "2130706433", "127.0.0.1%25lo"])
async def test_addresses_of_an_unusual_form_are_not_connected_to(name: str) -> None:
    async with listener() as internal:
        with contextlib.suppress(WindowboxError):
            await told(of(f"http://{name}:{internal.port}"), Egress())
        assert internal.requests == []


async def test_a_proxy_name_resolving_to_denied_addresses_fails() -> None:
    async with listener() as internal:
        kubeconfig = of("http://192.0.2.1", **{"proxy-url": f"http://localhost:{internal.port}"})
        assert NEUTRAL in await told(kubeconfig, Egress())
        assert internal.requests == []
        async with kube.from_text(kubeconfig, "it", loopback.EGRESS) as opened:
            assert await opened.version() == "v1"


async def test_the_address_that_was_checked_is_the_one_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that leads elsewhere when it is looked up again."""
    permitted = Egress((), (ip_network("127.0.0.2/32"),))
    given = iter(["127.0.0.2", "127.0.0.1", "127.0.0.1"])
    asked: list[str] = []

    async def resolve(_: Any, host: str, port: int, family: int) -> list[dict[str, Any]]:
        asked.append(host)
        found = {"hostname": host, "host": next(given), "port": port}
        return [{**found, "family": socket.AF_INET, "proto": 0, "flags": 0}]

    monkeypatch.setattr(aiohttp.DefaultResolver, "resolve", resolve)
    async with listener() as internal:
        for _ in range(3):
            async with kube.from_text(of(f"http://rebinding:{internal.port}"), "it", permitted) as opened:
                with pytest.raises(Unreachable, match=NEUTRAL):
                    await opened.version()
    assert asked == ["rebinding"] * 3
    assert internal.requests == []


async def test_refused_silent_and_distrusted_servers_are_told_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube, "_LIMIT", aiohttp.ClientTimeout(total=0.5))
    monkeypatch.setattr(kube, "_SILENCE", 0.5)
    servers = [f"https://127.0.0.1:{processes.free_port()}", "http://localhost:1"]
    async with liar(tmp_path, "uid") as distrusted:
        silent = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        async with silent:
            servers += [distrusted.url, f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"]
            assert {await told(of(server), loopback.EGRESS) for server in servers} == {
                f"get /version: {NEUTRAL}"
            }
