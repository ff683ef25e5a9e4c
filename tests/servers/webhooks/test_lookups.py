"""What webhooks look up in an API server that takes its time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from webhooks import lookups
from webhooks.lookups import Lookups
from webhooks.review import Found, Lookup
from windowbox.clients.kubernetes import kube
from windowbox.models.refs import CLUSTERS

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


async def test_who_comes_late_does_not_fail_with_an_old_request(
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


async def test_what_nobody_waits_for_takes_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    application = web.Application()
    application.router.add_get("/apis/{group}/{version}/clusters/{name}", get)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with kube.from_file(_kubeconfig(folder, runner.addresses[0][1])) as opened:
            yield Lookups(opened, lambda: None, frozenset())
    finally:
        await runner.cleanup()


def _kubeconfig(folder: Path, port: int) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "one", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "one", "user": {}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "current-context": "one",
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path
