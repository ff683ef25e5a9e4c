"""Several API servers, as those of Shoots, that ask one webhook process about their nodes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from sandbox import processes
from sandbox.processes import ProcessId
from sandbox.programs import binaries
from sandbox.servers import controlplane
from sandbox.servers.apiserver import ApiServer
from tools.bench import client
from tools.bench.client import Client
from tools.bench.world import World
from windowbox.errors import Refused, Unreachable
from windowbox.models.refs import NODES
from windowbox.rights import webhookconfigurations as configurations
from windowbox.settings.webhooksettings import WebhookSettings

_PATIENCE = 180.0
_NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "one"},
    "status": {"capacity": {"cpu": "2", "memory": "1Gi"}, "allocatable": {"cpu": "2", "memory": "1Gi"}},
}
_STATUS = f"{NODES.path(name='one')}/status?dryRun=All"

Ask = Callable[[int], Awaitable[None]]


@contextlib.asynccontextmanager
async def asking(here: World, count: int, say: Callable[[str], None]) -> AsyncIterator[Ask]:
    """Reports of kubelets, to so many API servers in turn, each of which asks the webhook `node`."""
    configuration = _configuration(here, await _bundle(here))
    async with contextlib.AsyncExitStack() as stack:
        servers = list[Client]()
        for number in range(count):
            say(f"API server {number + 1} of {count}")
            api = stack.enter_context(_started(here, number))
            servers.append(await stack.enter_async_context(client.opened(api)))
            await _prepare(api, servers[-1], configuration)

        async def report(number: int) -> None:
            patch = {"status": {"capacity": {"cpu": "2"}}}
            made = await servers[number % count].request("PATCH", _STATUS, patch)
            if made["status"]["capacity"]["cpu"] != "100":
                raise Refused("the webhook has not changed the node")

        yield report


@contextlib.contextmanager
def _started(here: World, number: int) -> Iterator[ApiServer]:
    """An API server that has a part of the sandbox's etcd."""
    folder = here.sandbox.folder
    identity, port = controlplane.identities(folder / "pki"), processes.free_port()
    child = controlplane.apiserver(
        binaries.find("kube-apiserver"),
        identity,
        port,
        here.sandbox.state.ports["etcd"],
        [f"--etcd-prefix=/shoot-{number}"],
    )
    log = folder / "logs" / f"shoot-{number}.log"
    process = processes.start(child.argv, log, env=dict(child.env))
    try:
        yield controlplane.api(identity, port)
    finally:
        processes.end(ProcessId(process.pid, processes.started(process.pid) or ""))


async def _prepare(api: ApiServer, server: Client, configuration: dict[str, Any]) -> None:
    async with asyncio.timeout(_PATIENCE):
        while not await asyncio.to_thread(api.ready):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        path = configurations.RESOURCES[configuration["kind"]].path()
        await _created(server, NODES.path(), _NODE)
        await _created(server, path, configuration)
        # The API server does not tell when it has read its configurations.
        while not await _asks(server):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def _created(server: Client, path: str, manifest: dict[str, Any]) -> None:
    """Many servers that start at once on few CPUs refuse requests, or answer late, for a while."""
    while True:
        try:
            await server.request("POST", path, manifest, accepted=(201, 409))
        except (Refused, Unreachable):
            await asyncio.sleep(0.5)
        else:
            return


async def _asks(server: Client) -> bool:
    with contextlib.suppress(Refused, Unreachable):
        made = await server.request("PATCH", _STATUS, {"status": {"capacity": {"cpu": "2"}}})
        return bool(made["status"]["capacity"]["cpu"] == "100")
    return False


async def _bundle(here: World) -> str:
    """The authorities that the sandbox's own API server trusts."""
    resource = configurations.RESOURCES["MutatingWebhookConfiguration"]
    name = configurations.names(WebhookSettings()).prefixed
    found = await here.client.request("GET", resource.path(name=name))
    return str(found["webhooks"][0]["clientConfig"]["caBundle"])


def _configuration(here: World, bundle: str) -> dict[str, Any]:
    """What the ControlPlane hands over to a Shoot."""
    url = f"127.0.0.1:{here.sandbox.state.ports['webhooks']}"
    (made,) = configurations.for_shoot(WebhookSettings(mode="url", url=url), b"")
    for entry in made["webhooks"]:
        entry["clientConfig"]["caBundle"] = bundle
    return made
