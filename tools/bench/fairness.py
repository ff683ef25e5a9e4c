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

from sandbox import processes
from sandbox.options import Options
from sandbox.servers import certificates, kubeconfigs
from tools.bench.neighbours import Latency, latencies, neighbours
from tools.bench.shoots import Shoots
from tools.bench.world import World, world

_PASSED_ON = ("Authorization", "Accept", "Content-Type")


async def run(count: int, delay: float, rounds: int, turns: int, say: Callable[[str], None]) -> list[Latency]:
    """Neighbours alone, and beside so many objects of a provider that answers late, in turn.

    On a machine that others use too, what is measured once before and once after tells of the others.
    """
    say("starting a sandbox with simulated nodes")
    found: dict[str, dict[str, list[float]]] = {}

    async def measure(phase: str, seconds: float) -> None:
        took = await others.seconds(asyncio.create_task(asyncio.sleep(seconds)), rounds)
        for kind, some in took.items():
            found.setdefault(phase, {}).setdefault(kind, []).extend(some)

    async with (
        world("fairness", Options(simulated_nodes=2)) as here,
        neighbours(here) as others,
        late_api(here) as late,
    ):
        shoots = Shoots(here.client, late.kubeconfig)
        for turn in range(turns):
            # New ones each time: what is as it ought to be costs its provider no request.
            mine = range(turn * count, (turn + 1) * count)
            await here.client.each(mine, shoots.prepare)
            await here.quiet()
            say(f"turn {turn + 1} of {turns}: neighbours alone")
            await measure("alone", 0)
            say(f"{count} Infrastructures of a provider that answers after {delay:g} s")
            late.answer_after(delay)
            await here.client.each(mine, shoots.infrastructure)
            await here.quiet()  # all of them wait now
            await measure("beside the slow provider", delay)
            say(f"{late.delayed} requests to it so far had to wait")
            late.answer_at_once()
    return [one for phase, seconds in found.items() for one in latencies(phase, seconds)]


class LateApi:
    """When a provider cluster answers."""

    def __init__(self, kubeconfig: str) -> None:
        self.kubeconfig = kubeconfig
        self.delayed = 0
        """How many requests had to wait."""
        self._delay = 0.0
        self._at_once = asyncio.Event()

    def answer_after(self, delay: float) -> None:
        self._delay = delay
        self._at_once.clear()

    def answer_at_once(self) -> None:
        """What was asked before, too."""
        self._delay = 0.0
        self._at_once.set()

    async def due(self) -> None:
        self.delayed += self._delay > 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._delay):
                await self._at_once.wait()


@contextlib.asynccontextmanager
async def late_api(here: World) -> AsyncIterator[LateApi]:
    """The sandbox's API server as a provider cluster that can answer late."""
    folder = here.sandbox.folder / "slow"
    folder.mkdir()
    authority = certificates.authority(folder)
    pair = certificates.server(authority, folder, "slow", ["127.0.0.1"])
    port, original = processes.free_port(), kubeconfigs.provider(here.sandbox.folder)
    late = LateApi(_leading_to(original, f"https://127.0.0.1:{port}", authority.certificate))
    trust = ssl.create_default_context(cafile=str(here.sandbox.api.ca.certificate))
    async with aiohttp.ClientSession(
        here.sandbox.api.url, connector=aiohttp.TCPConnector(ssl=trust, limit=0)
    ) as upstream:

        async def answer(request: web.Request) -> web.Response:
            body = await request.read()
            await late.due()
            headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
            asked = upstream.request(request.method, request.raw_path, data=body, headers=headers)
            async with asked as found:
                content, kind = await found.read(), found.content_type
                return web.Response(status=found.status, body=content, content_type=kind)

        runner = await _listening(answer, port, pair.certificate, pair.key)
        try:
            yield late
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
