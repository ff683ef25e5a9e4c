"""A rotation of the webhooks' authority and certificate, while an API server asks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from bus.leases import presence
from sandbox.servers.manifests import SYSTEM_NAMESPACE
from tools.bench.requests import Asked, Latency, at_rate, latency
from tools.bench.world import World
from windowbox.models.refs import SECRETS

_PATIENCE = 120.0
_AFTER = 5.0
"""Seconds for which requests go on when all processes show the new certificate."""


async def rotated(here: World, rate: float, ask: Callable[[int], Awaitable[None]]) -> Latency:
    """Have the authority renewed while `ask` is called so many times a second."""
    asked, shown, began = Asked(), await _shown(here), time.perf_counter()
    asking = asyncio.create_task(at_rate(ask, rate, int(rate * _PATIENCE * 2), asked))
    try:
        await _age(here)
        async with asyncio.timeout(_PATIENCE):
            # Processes do not tell when they show another certificate.
            while not (now := await _shown(here)) or shown & now:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        seconds = time.perf_counter() - began
        # New connections come with time.
        await asyncio.sleep(_AFTER)
    finally:
        asking.cancel()
        await asyncio.wait([asking])
    what = f"Deployment, asked, during a rotation of {seconds:.0f} s"
    return latency(what, asked, time.perf_counter() - began)


async def _shown(here: World) -> set[str]:
    """The Secrets whose certificates are shown."""
    found = await presence.processes(here.bus)
    return {str(process["certificate"]) for process in found if "certificate" in process}


async def _age(here: World) -> None:
    """Have the authority look as if it were to be renewed by now."""
    path = SECRETS.path(SYSTEM_NAMESPACE)
    listed = await here.client.request("GET", f"{path}?labelSelector=name%3Dca-provider-local-webhook")
    now = int(time.time())
    labels = {"issued-at-time": str(now - 29 * 86400), "valid-until-time": str(now + 86400)}
    for found in listed["items"]:
        name = found["metadata"]["name"]
        await here.client.request(
            "PATCH", SECRETS.path(SYSTEM_NAMESPACE, name), {"metadata": {"labels": labels}}
        )
