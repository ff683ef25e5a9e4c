"""Load balancers of a Shoot that is hibernated and woken: from nodes that are Ready to clients served."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from sandbox import shipped
from sandbox.machines import image
from sandbox.options import TOGETHER, Options
from sandbox.progress import Progress
from sandbox.servers.apiserver import ApiServer, from_kubeconfig
from sandbox.shoots import creation, hibernation, records, waiting
from sandbox.shoots.creation import Sandbox
from sandbox.shoots.records import Shoot
from tools.bench.loadbalancers import attempts, noted, summed
from tools.bench.loadbalancers_clients import greeting, refused
from tools.bench.loadbalancers_figures import Measured
from tools.bench.world import world
from windowbox.errors import Refused, Unreachable

Say = Callable[[str], None]

_NAME = "bench"
_MACHINES = 2
_RATE = 20
_AIM = 5000
_PATIENCE = 90.0
_CALM = 2.0
"""Seconds without a failure after which clients count as served."""
_LOOK_AGAIN = 0.02
_SERVICES = "/api/v1/namespaces/demo/services"


async def run(times: int, say: Say) -> list[Measured]:
    """Hibernate and wake a Shoot so often; then as often while its API server is away when machines end."""
    if reason := image.impossible():
        raise Refused(f"no machines: {reason}")
    say("starting a sandbox with nodes, and a Shoot in it")
    async with world("hibernation", Options.model_validate({**TOGETHER, "nodes": 2})) as here:
        loop = asyncio.get_running_loop()

        def notify() -> None:
            loop.call_soon_threadsafe(here.sandbox.look_at_shoots)

        sandbox = Sandbox(here.sandbox.folder, notify)
        shoot = await asyncio.to_thread(
            creation.create, sandbox, _NAME, _MACHINES, Progress(lambda line: None), _silent
        )
        addresses = await asyncio.to_thread(_balance, sandbox, shoot)
        found: list[Measured] = []
        for left in (False, True):
            more = ", nodes left" if left else ""
            for policy, address in addresses.items():
                say(f"hibernated and woken{more}, policy {policy}, {times} times")
                bench = Hibernation(sandbox, shoot, address)
                found += await bench.measured(f"{policy}{more}", times, left=left)
        return found


@dataclass(frozen=True)
class Took:
    """Seconds of one wake-up."""

    of_node: float
    """From the first node being Ready to the first answer."""
    of_pod: float
    """From the first Pod being Ready to the first answer."""
    until_calm: float
    """From the last node being Ready to the last connection that failed."""


@dataclass
class Hibernation:
    """Hibernates the Shoot and wakes it up, while a client calls one of its load balancers."""

    sandbox: Sandbox
    shoot: Shoot
    address: str

    async def measured(self, what: str, times: int, *, left: bool) -> list[Measured]:
        """Hibernate and wake so often. With `left`, nodes are left behind each time."""
        took: list[Took] = []
        failed: list[str] = []
        for _ in attempts(times, failed):
            with noted(failed):
                took.append(await self._once(left=left))
        return [
            summed(f"{what}: first node → answer", [one.of_node for one in took], _AIM, failed),
            summed(f"{what}: first Pod → answer", [one.of_pod for one in took], None, failed),
            summed(f"{what}: last node → last failure", [one.until_calm for one in took], _AIM, failed),
        ]

    async def _once(self, *, left: bool) -> Took:
        if left:
            await self._lose_api_server()
        await asyncio.to_thread(hibernation.hibernate, self.sandbox, _NAME, _silent)
        with (
            followed(self.sandbox, "/api/v1/nodes") as nodes,
            followed(self.sandbox, "/api/v1/namespaces/demo/pods") as pods,
        ):
            async with asyncio.TaskGroup() as group:
                calls = Calls(self.address)
                calling = group.create_task(calls.run(group), name="client")
                await asyncio.to_thread(hibernation.wake, self.sandbox, _NAME, _silent)
                await calls.until_calm()
                calling.cancel()
        machines = await asyncio.to_thread(_machines, self.sandbox, self.shoot)
        first, *_, last = sorted(at for node, at in nodes.items() if node in machines)
        pod = min(at for at in pods.values() if at > first)  # not those that were left with their nodes
        answered = min(calls.answered)
        return Took(
            of_node=max(0.0, answered - first),
            of_pod=max(0.0, answered - pod),
            until_calm=max(0.0, max(calls.failed) - last),
        )

    async def _lose_api_server(self) -> None:
        """Have machines end while the Shoot's API server is not asked any more: their nodes are left."""
        asleep = {"spec": {"hibernation": {"enabled": True}}, "status": {"isHibernated": True}}
        await asyncio.to_thread(hibernation.change, self.sandbox, self.shoot, asleep)
        await refused(self.address, 80)
        await asyncio.to_thread(hibernation.reconcile, self.sandbox, self.shoot)


@dataclass
class Calls:
    """A client that connects at a constant rate."""

    address: str
    answered: list[float] = field(default_factory=list)
    """When each answer came."""
    failed: list[float] = field(default_factory=list)
    """When each connection that failed was begun."""

    async def run(self, group: asyncio.TaskGroup) -> None:
        while True:
            group.create_task(self._call())
            await asyncio.sleep(1 / _RATE)

    async def until_calm(self) -> None:
        """Wait until connections have not failed for a while."""
        async with asyncio.timeout(_PATIENCE):
            while not self._calm():  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_AGAIN)

    def _calm(self) -> bool:
        return bool(self.answered) and time.perf_counter() - max(self.failed, default=0.0) > _CALM

    async def _call(self) -> None:
        begun = time.perf_counter()
        try:
            await greeting(self.address, 80)
        except OSError:
            self.failed.append(begun)
        else:
            self.answered.append(time.perf_counter())


@contextlib.contextmanager
def followed(sandbox: Sandbox, path: str) -> Iterator[dict[str, float]]:
    """When each object at `path` in the Shoot was Ready first, by name; from when its API server answers."""
    api = from_kubeconfig(records.kubeconfig(sandbox.folder, _NAME))
    ready, over = dict[str, float](), threading.Event()

    def follow() -> None:
        while not over.is_set():
            try:
                for event in api.events(path, seconds=5):
                    if event["type"] != "ERROR" and creation.is_ready(event["object"]):
                        ready.setdefault(event["object"]["metadata"]["name"], time.perf_counter())
            except (Refused, Unreachable):
                time.sleep(_LOOK_AGAIN)  # not started yet

    threading.Thread(target=follow, name=path, daemon=True).start()
    try:
        yield ready
    finally:
        over.set()


def _balance(sandbox: Sandbox, shoot: Shoot) -> dict[str, str]:
    """Echo servers in the Shoot, and the addresses of two load balancers for them, by traffic policy."""
    api = from_kubeconfig(records.kubeconfig(sandbox.folder, shoot.name))
    namespace, deployment, local = yaml.safe_load_all((shipped.EXAMPLES / "loadbalancer.yaml").read_text())
    api.apply(f"/api/v1/namespaces/{namespace['metadata']['name']}", namespace)
    everywhere = copy.deepcopy(local)
    everywhere["metadata"]["name"] = "everywhere"
    everywhere["spec"]["externalTrafficPolicy"] = "Cluster"
    for manifest in (deployment, local, everywhere):
        creation.apply(api, manifest)
    return {"Cluster": _address(api, "everywhere"), "Local": _address(api, "echo")}


def _address(api: ApiServer, name: str) -> str:
    def addressed(service: dict[str, Any]) -> bool:
        return bool((service.get("status", {}).get("loadBalancer") or {}).get("ingress"))

    what = f"Service demo/{name} has no address"
    found = waiting.until(api, _SERVICES, name, addressed, what, patience=_PATIENCE)
    return str(found["status"]["loadBalancer"]["ingress"][0]["ip"])


def _machines(sandbox: Sandbox, shoot: Shoot) -> set[str]:
    """The names of the nodes that the Shoot's machines are."""
    machines = sandbox.api.read(creation.machines_path(shoot))["items"]
    return {f"machine-{one['metadata']['name']}" for one in machines}


def _silent(what: str, seconds: float) -> None:
    """Steps of the commands are not shown."""
