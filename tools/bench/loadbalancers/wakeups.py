"""A Shoot that is hibernated and woken: from nodes that are Ready to clients of its load balancers served."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from sandbox import shipped
from sandbox.machines import image
from sandbox.options import TOGETHER, Options
from sandbox.progress import Progress
from sandbox.servers.apiserver import from_kubeconfig, is_ready
from sandbox.shoots import creation, hibernation, records, waiting
from sandbox.shoots.creation import Sandbox
from sandbox.shoots.records import Shoot
from tools.bench.loadbalancers.traffic import Caller, refused
from tools.bench.report import Measured, Report, measured_parts, repeated, say
from tools.bench.world import world
from windowbox.errors import Refused, Unreachable

_NAME = "bench"
_MACHINES = 2
_RATE = 20
_AIM = 5000
_PATIENCE = 90.0
_CALM = 2.0
"""Seconds without a failure after which clients count as served."""
_SERVICES = "/api/v1/namespaces/demo/services"


@dataclass(frozen=True)
class Took:
    """Seconds of one wake-up."""

    of_node: float
    """From the first Ready node to the first answer."""
    of_pod: float
    """From the first Ready Pod to the first answer."""
    until_calm: float
    """From the last Ready node to the last connection that failed."""


async def measure(times: int) -> Report:
    """Hibernate and wake a Shoot; then also while its API server is away when its machines end."""
    if reason := image.impossible():
        raise Refused(f"no machines: {reason}")
    async with world("hibernation", Options.model_validate({**TOGETHER, "nodes": 2})) as here:
        loop = asyncio.get_running_loop()

        def notify() -> None:
            loop.call_soon_threadsafe(here.sandbox.look_at_shoots)

        sandbox = Sandbox(here.sandbox.folder, notify)
        say(f"a Shoot with {_MACHINES} machines")
        shoot = await asyncio.to_thread(
            creation.create, sandbox, _NAME, _MACHINES, Progress(lambda line: None), _silent
        )
        addresses = await asyncio.to_thread(_balance, sandbox)
        found: list[Measured] = []
        for left in (False, True):
            for policy, address in addresses.items():
                what = f"{policy}, nodes left" if left else policy
                say(f"hibernated and woken: policy {what}, {times} times")
                wake_ups = WakeUps(sandbox, shoot, address, left)
                took, failed = await repeated(times, wake_ups.wake_up)
                found += [
                    Measured.of(f"{what}: first node → answer", [one.of_node for one in took], _AIM, failed),
                    Measured.of(f"{what}: first Pod → answer", [one.of_pod for one in took], None, failed),
                    Measured.of(
                        f"{what}: last node → last failure", [one.until_calm for one in took], _AIM, failed
                    ),
                ]
    return Report(found, measured_parts("From nodes that are Ready to clients served", found))


@dataclass(frozen=True)
class WakeUps:
    """Hibernates the Shoot and wakes it, while a client calls one of its load balancers."""

    sandbox: Sandbox
    shoot: Shoot
    address: str
    left: bool
    """Whether nodes are left behind each time."""

    async def wake_up(self) -> Took:
        if self.left:
            # Machines that end while the Shoot's API server is not asked leave their nodes behind.
            asleep = {"spec": {"hibernation": {"enabled": True}}, "status": {"isHibernated": True}}
            await asyncio.to_thread(hibernation.change, self.sandbox, self.shoot, asleep)
            await refused(self.address, 80)
            await asyncio.to_thread(hibernation.reconcile, self.sandbox, self.shoot)
        await asyncio.to_thread(hibernation.hibernate, self.sandbox, _NAME, _silent)
        caller = Caller(self.address, 80)
        with (
            _ready(self.sandbox, "/api/v1/nodes") as nodes,
            _ready(self.sandbox, "/api/v1/namespaces/demo/pods") as pods,
        ):
            async with caller.calling(_RATE):
                await asyncio.to_thread(hibernation.wake, self.sandbox, _NAME, _silent)
                await caller.until_calm(_CALM, _PATIENCE)
        found = await asyncio.to_thread(self.sandbox.api.read, creation.machines_path(self.shoot))
        machines = {f"machine-{one['metadata']['name']}" for one in found["items"]}
        first, *_, last = sorted(at for node, at in nodes.items() if node in machines)
        pod = min(at for at in pods.values() if at > first)  # not those that were left with their nodes
        answered = min(one.ended for one in caller.served)
        return Took(
            of_node=max(0.0, answered - first),
            of_pod=max(0.0, answered - pod),
            until_calm=max(0.0, max(one.begun for one in caller.failed) - last),
        )


@contextlib.contextmanager
def _ready(sandbox: Sandbox, path: str) -> Iterator[dict[str, float]]:
    """When each object at `path` in the Shoot was first Ready, by name, once its API server answers."""
    api = from_kubeconfig(records.kubeconfig(sandbox.folder, _NAME))
    ready, over = dict[str, float](), threading.Event()

    def follow() -> None:
        while not over.is_set():
            try:
                for event in api.events(path, seconds=5):
                    if event["type"] != "ERROR" and is_ready(event["object"]):
                        ready.setdefault(event["object"]["metadata"]["name"], time.perf_counter())
            except (Refused, Unreachable):
                time.sleep(0.02)  # not started yet

    threading.Thread(target=follow, name=path, daemon=True).start()
    try:
        yield ready
    finally:
        over.set()


def _balance(sandbox: Sandbox) -> dict[str, str]:
    """Create echo servers in the Shoot and two Services for them: their addresses, by traffic policy."""
    api = from_kubeconfig(records.kubeconfig(sandbox.folder, _NAME))
    namespace, deployment, local = yaml.safe_load_all((shipped.EXAMPLES / "loadbalancer.yaml").read_text())
    api.apply(f"/api/v1/namespaces/{namespace['metadata']['name']}", namespace)
    everywhere = copy.deepcopy(local)
    everywhere["metadata"]["name"] = "everywhere"
    everywhere["spec"]["externalTrafficPolicy"] = "Cluster"
    for manifest in (deployment, local, everywhere):
        api.apply_object(manifest)

    def addressed(service: dict[str, Any]) -> bool:
        return bool((service.get("status", {}).get("loadBalancer") or {}).get("ingress"))

    def address(name: str) -> str:
        what = f"Service demo/{name} has no address"
        found = waiting.until(api, _SERVICES, name, addressed, what, patience=_PATIENCE)
        return str(found["status"]["loadBalancer"]["ingress"][0]["ip"])

    return {"Cluster": address("everywhere"), "Local": address("echo")}


def _silent(what: str, seconds: float) -> None:
    """Do not show the steps of the commands."""
