"""Machines: from the API to nodes that have joined, and back, with simulated kubelets."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from sandbox import roles
from sandbox.options import Options
from sandbox.servers import kubeconfigs
from tools.bench.client import Client, Observer, background
from tools.bench.report import MachineFacts, Phase, Report, Spread, phases_table, requests_table, say
from tools.bench.world import world
from windowbox.errors import Refused
from windowbox.models import machinekeys
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_CLASSES, MACHINES, NAMESPACES, NODES, PODS, SECRETS
from workers.core.joinannotations import KUBECONFIG

START, JOIN = 1.0, 1.0
"""Seconds until a simulated Pod runs, and from then until its node is ready."""
RUNNING_MS, BURST_S, DELETION_MS, WRITES, READS = 2200.0, 3.0, 1000.0, 8.0, 3.0
"""Aims: for one Machine, for all at once, for a deletion, and for requests to the API for each."""
_WARM_UP = 3
_NAMESPACE = "shoot--bench--machines"
_HOME = f"infra-{_NAMESPACE}"
"""The namespace of the Pods."""
_API = "machine.sapcloud.io/v1alpha1"
_USER_DATA = b"#!/bin/sh\nbegin <<MACHINE_NAME>> <<BOOTSTRAP_TOKEN>>\n"


@dataclass(frozen=True)
class MachineFigures(MachineFacts):
    """The result of `bench machines`."""

    phases: Sequence[Phase]
    after_pod: Spread
    """From a Pod being gone to its Machine being gone."""


async def measure(count: int, singles: int) -> Report:
    """Measure `singles` Machines one after the other, then `count` at once; then their deletion."""

    def runs(machine: Object) -> bool:
        return bool((machine.status.get("currentStatus") or {}).get("phase") == "Running")

    async with world("machines", Options()) as here:
        folder, client = here.sandbox.folder, here.client
        made = MachineClient(client)
        provider, target = (
            roles.provider_kubeconfig(folder),
            kubeconfigs.inline(roles.kubeconfig(folder, "target")),
        )
        await made.prepare(provider, target)
        kubelets = SimulatedKubelets(client)
        async with (
            Observer.watching(client, MACHINES, _NAMESPACE, runs) as observer,
            kubelets.running(),
        ):
            measured = partial(here.measured, named=_named, observer=observer)
            alone, warm_up = range(count, count + singles), range(count + singles, count + singles + _WARM_UP)
            await measured("warm up", warm_up, made.create)
            say(f"{singles} Machines one after the other, {count} at once")
            phases = [
                await measured("isolated", alone, made.create, one_by_one=True),
                await measured("create", range(count), made.create),
            ]
            say("their deletion")
            phases.append(await measured("delete one", alone, made.delete, gone=True, one_by_one=True))
            after = [observer.seen[name] - at for name, at in kubelets.gone.items() if name in observer.seen]
            phases.append(await measured("delete", range(count), made.delete, gone=True))
    after_pod = Spread.of(after)
    parts: list[RenderableType] = [
        phases_table(f"Machines; Pods run after {START:g} s, nodes join {JOIN:g} s later", phases),
        requests_table(phases),
        Text(
            f"From a Pod being gone to its Machine being gone: p50 {after_pod.p50} ms, p95 "
            f"{after_pod.p95} ms (aim: {DELETION_MS:.0f} ms)\n"
            f"Aims: one Machine runs after {RUNNING_MS:.0f} ms, 20 at once after {BURST_S:.0f} s; "
            f"{WRITES:.0f} writes and {READS:.0f} reads for each"
        ),
    ]
    return Report(MachineFigures(phases, after_pod), parts)


def _named(number: int) -> str:
    return f"machine-{number:04}"


@dataclass(frozen=True)
class MachineClient:
    """Creates Machines as a MachineSet would."""

    client: Client

    async def prepare(self, provider: str, target: str) -> None:
        """Create what Machines need: `provider` leads to the cluster of Pods, `target` to that of nodes."""
        joins = {KUBECONFIG: "target"}
        capacity = {"cpu": "1", "gpu": "0", "memory": "8Gi"}
        machine_class = {
            "apiVersion": _API,
            "kind": "MachineClass",
            "metadata": {"name": "bench"},
            "provider": "local",
            "secretRef": {"name": "userdata", "namespace": _NAMESPACE},
            "credentialsSecretRef": {"name": "cloudprovider", "namespace": _NAMESPACE},
            "providerSpec": {"image": "example/node:1", "namespace": _HOME},
            "nodeTemplate": {"capacity": capacity, "instanceType": "local", "region": "local", "zone": "0"},
        }
        post = partial(self.client.request, "POST")
        await post(NAMESPACES.path(), {"metadata": {"name": _NAMESPACE, "annotations": joins}})
        await post(NAMESPACES.path(), {"metadata": {"name": _HOME}})
        for name, key, content in (
            ("cloudprovider", "kubeconfig", provider.encode()),
            ("target", "kubeconfig", target.encode()),
            ("userdata", "userData", _USER_DATA),
        ):
            data = {key: base64.b64encode(content).decode()}
            await post(SECRETS.path(_NAMESPACE), {"metadata": {"name": name}, "data": data})
        await post(MACHINE_CLASSES.path(_NAMESPACE), machine_class)

    async def create(self, number: int) -> None:
        name = _named(number)
        metadata = {
            "name": name,
            "finalizers": [machinekeys.FINALIZER],
            "labels": {machinekeys.NODE: f"machine-{name}"},
            "annotations": {machinekeys.PRIORITY: machinekeys.USUAL_PRIORITY},
        }
        spec = {"class": {"kind": "MachineClass", "name": "bench"}, "providerID": f"machine-{name}"}
        body = {"apiVersion": _API, "kind": "Machine", "metadata": metadata, "spec": spec}
        await self.client.request("POST", MACHINES.path(_NAMESPACE), body)

    async def delete(self, number: int) -> None:
        await self.client.request("DELETE", MACHINES.path(_NAMESPACE, _named(number)))


@dataclass
class SimulatedKubelets:
    """Machine Pods run after `START` seconds, and their nodes are ready `JOIN` seconds later."""

    client: Client
    gone: dict[str, float] = field(default_factory=dict)
    """When the Pod of each Machine was gone."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        # The selector of windowbox's own watch would hide Pods without the label.
        pods = PODS._replace(selector="")
        changes = self.client.changes(await self.client.version(pods, _HOME), pods, _HOME)

        async def boot(name: str) -> None:
            with contextlib.suppress(Refused):  # the Pod was deleted meanwhile
                await asyncio.sleep(START)
                running = {"running": {"startedAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}}
                container: dict[str, Any] = {"name": "node", "image": "x", "imageID": "x", "ready": True}
                container |= {"restartCount": 0, "state": running}
                status = {"status": {"phase": "Running", "containerStatuses": [container]}}
                await self.client.request("PATCH", f"{PODS.path(_HOME, name)}/status", status)
                await asyncio.sleep(JOIN)
                ready = {"type": "Ready", "status": "True", "reason": "Simulated"}
                body = {"metadata": {"name": name}, "status": {"conditions": [ready]}}
                await self.client.request("POST", NODES.path(), body)

        async def follow() -> None:
            async with asyncio.TaskGroup() as group:
                async for now, type_, pod in changes:
                    if type_ == "ADDED":
                        group.create_task(boot(pod.name))
                    elif type_ == "DELETED":
                        self.gone.setdefault(pod.name.removeprefix("machine-"), now)

        async with background(follow(), "simulated kubelets"):
            yield
