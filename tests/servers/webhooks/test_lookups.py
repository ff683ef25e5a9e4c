"""What webhooks look up in an API server that takes its time."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import yaml
from aiohttp import web

from webhooks.lookups import Lookups
from webhooks.review import Found, Lookup
from windowbox.clients import kube
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

    application = web.Application()
    application.router.add_get("/apis/{group}/{version}/clusters/{name}", get)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with kube.from_file(_kubeconfig(tmp_path, runner.addresses[0][1])) as opened:
            lookups = Lookups(opened, lambda: None, frozenset())
            late = await lookups.look(_SLOW, 0.1)
            waiting = [asyncio.create_task(lookups.look(_SLOW, 60)) for _ in range(100)]
            assert (await lookups.look(_OTHER, 60)).object is not None
            released.set()
            found = await asyncio.gather(*waiting)
    finally:
        await runner.cleanup()
    assert late == Found(None, 'clusters.extensions.gardener.cloud "slow": the API is too slow')
    assert all(one.object is not None for one in found)
    assert asked == {"slow": 1, "other": 1}


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
