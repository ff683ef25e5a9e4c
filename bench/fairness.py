"""A provider cluster that answers after many seconds, and what the objects of others notice of it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web

from bench.neighbours import Latency, neighbours
from bench.shoots import Shoots
from bench.world import World, world
from windowbox.sandbox import certificates, kubeconfigs, processes
from windowbox.sandbox.options import Options

_PASSED_ON = ("Authorization", "Accept", "Content-Type")


async def run(count: int, delay: float, rounds: int, say: Callable[[str], None]) -> list[Latency]:
    """So many objects of a provider that answers late; each kind of neighbours reconciled `rounds` times."""
    say("starting a sandbox with simulated nodes")
    async with world("fairness", Options(simulated_nodes=2)) as here, neighbours(here) as others:
        await here.quiet()
        say("neighbours alone")
        found = await others.measured("alone", asyncio.create_task(asyncio.sleep(0)), rounds)
        async with slow_api(here, delay) as kubeconfig:
            say(f"{count} Infrastructures of a provider that answers after {delay:g} s")
            slow = Shoots(here.client, kubeconfig)
            await here.client.each(range(count), slow.prepare)
            await here.client.each(range(count), slow.infrastructure)
            measuring = asyncio.create_task(asyncio.sleep(2 * delay))
            return found + await others.measured("beside the slow provider", measuring, rounds)


@contextlib.asynccontextmanager
async def slow_api(here: World, delay: float) -> AsyncIterator[str]:
    """The sandbox's API server as a provider cluster that answers late. Yields a kubeconfig."""
    folder = here.sandbox.folder / "slow"
    folder.mkdir()
    authority = certificates.authority(folder)
    pair = certificates.server(authority, folder, "slow", ["127.0.0.1"])
    port, original = processes.free_port(), kubeconfigs.provider(here.sandbox.folder)
    trust = ssl.create_default_context(cafile=str(here.sandbox.api.ca.certificate))
    async with aiohttp.ClientSession(
        here.sandbox.api.url, connector=aiohttp.TCPConnector(ssl=trust, limit=0)
    ) as upstream:

        async def answer(request: web.Request) -> web.Response:
            body = await request.read()
            await asyncio.sleep(delay)
            headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
            asked = upstream.request(request.method, request.raw_path, data=body, headers=headers)
            async with asked as found:
                content, kind = await found.read(), found.content_type
                return web.Response(status=found.status, body=content, content_type=kind)

        runner = await _listening(answer, port, pair.certificate, pair.key)
        try:
            yield _leading_to(original, f"https://127.0.0.1:{port}", authority.certificate)
        finally:
            await runner.cleanup()


async def _listening(
    answer: Callable[[web.Request], object], port: int, certificate: Path, key: Path
) -> web.AppRunner:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)  # type: ignore[arg-type]
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    return runner


def _leading_to(kubeconfig: str, server: str, authority: Path) -> str:
    """The kubeconfig with another server."""
    content = yaml.safe_load(kubeconfig)
    cluster = content["clusters"][0]["cluster"]
    cluster.clear()
    cluster |= {
        "server": server,
        "certificate-authority-data": base64.b64encode(authority.read_bytes()).decode(),
    }
    return str(yaml.safe_dump(content))
