"""The control plane of a Shoot with Machines, and simulated kubelets that run their Pods."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from tools.bench.client import Client
from windowbox.errors import Refused
from windowbox.models import machinekeys
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_CLASSES, MACHINES, NAMESPACES, NODES, PODS, SECRETS
from workers.core.joinannotations import KUBECONFIG

NAMESPACE = "shoot--bench--machines"
INFRASTRUCTURE = f"infra-{NAMESPACE}"
_API = "machine.sapcloud.io/v1alpha1"
_USER_DATA = b"#!/bin/sh\nbegin <<MACHINE_NAME>> <<BOOTSTRAP_TOKEN>>\n"
_PODS = PODS._replace(selector="")


def named(number: int) -> str:
    return f"machine-{number:04}"


@dataclass(frozen=True)
class MachineClient:
    """Makes Machines as a MachineSet would."""

    client: Client
    provider: str
    target: str
    """The kubeconfigs of the clusters with Pods, and with nodes: both are this one."""

    async def prepare(self) -> None:
        joins = {KUBECONFIG: "target"}
        await self._post(NAMESPACES.path(), {"metadata": {"name": NAMESPACE, "annotations": joins}})
        await self._post(NAMESPACES.path(), {"metadata": {"name": INFRASTRUCTURE}})
        await self._secret("cloudprovider", "kubeconfig", self.provider.encode())
        await self._secret("target", "kubeconfig", self.target.encode())
        await self._secret("userdata", "userData", _USER_DATA)
        await self._post(MACHINE_CLASSES.path(NAMESPACE), _class())

    async def create(self, number: int) -> None:
        spec: dict[str, Any] = {"class": {"kind": "MachineClass", "name": "bench"}}
        pod = f"machine-{named(number)}"
        metadata = {
            "name": named(number),
            "finalizers": [machinekeys.FINALIZER],
            "labels": {machinekeys.NODE: pod},
            "annotations": {machinekeys.PRIORITY: machinekeys.USUAL_PRIORITY},
        }
        spec["providerID"] = pod
        body = {"apiVersion": _API, "kind": "Machine", "metadata": metadata, "spec": spec}
        await self._post(MACHINES.path(NAMESPACE), body)

    async def delete(self, number: int) -> None:
        await self.client.request("DELETE", MACHINES.path(NAMESPACE, named(number)))

    async def _secret(self, name: str, key: str, content: bytes) -> None:
        data = {key: base64.b64encode(content).decode()}
        await self._post(SECRETS.path(NAMESPACE), {"metadata": {"name": name}, "data": data})

    async def _post(self, path: str, body: dict[str, Any]) -> None:
        await self.client.request("POST", path, body)


@dataclass
class MachineKubelets:
    """A simulator: machine Pods run after `start` seconds, and their nodes are ready `join` seconds later."""

    client: Client
    start: float
    join: float
    gone: dict[str, float] = field(default_factory=dict)
    """When the Pod of each Machine was gone."""

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, client: Client, start: float, join: float) -> AsyncIterator[MachineKubelets]:
        made = cls(client, start, join)
        version = await client.version(_PODS, INFRASTRUCTURE)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(made._watch(group, version), name="simulated kubelets")
            yield made
            watching.cancel()

    async def _watch(self, group: asyncio.TaskGroup, version: str) -> None:
        while True:
            async for lines in self.client.events(version, _PODS, INFRASTRUCTURE):
                now = time.perf_counter()
                for event in map(orjson.loads, lines):
                    pod = Object(event["object"])
                    version = pod.resource_version
                    if event["type"] == "ADDED":
                        group.create_task(self._boot(pod.name))
                    elif event["type"] == "DELETED":
                        self.gone.setdefault(pod.name.removeprefix("machine-"), now)

    async def _boot(self, name: str) -> None:
        with contextlib.suppress(Refused):  # the Pod is gone again
            await asyncio.sleep(self.start)
            running = {
                "state": {"running": {"startedAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}}
            }
            container = {"name": "node", "image": "x", "imageID": "x", "ready": True, "restartCount": 0}
            status = {"phase": "Running", "containerStatuses": [container | running]}
            await self.client.request(
                "PATCH", PODS.path(INFRASTRUCTURE, name) + "/status", {"status": status}
            )
            await asyncio.sleep(self.join)
            ready = {"type": "Ready", "status": "True", "reason": "Simulated"}
            body = {"metadata": {"name": name}, "status": {"conditions": [ready]}}
            await self.client.request("POST", NODES.path(), body)


def _class() -> dict[str, Any]:
    capacity = {"cpu": "1", "gpu": "0", "memory": "8Gi"}
    return {
        "apiVersion": _API,
        "kind": "MachineClass",
        "metadata": {"name": "bench"},
        "provider": "local",
        "secretRef": {"name": "userdata", "namespace": NAMESPACE},
        "credentialsSecretRef": {"name": "cloudprovider", "namespace": NAMESPACE},
        "providerSpec": {"image": "example/node:1", "namespace": INFRASTRUCTURE},
        "nodeTemplate": {"capacity": capacity, "instanceType": "local", "region": "local", "zone": "0"},
    }
