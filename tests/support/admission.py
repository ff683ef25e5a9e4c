"""`windowbox admit` in tests: beside a real API server that asks it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from commands.roles.admitting import Admitting, admitting
from sandbox import processes
from tests.support.roles import RoleServer
from tests.support.running import eventually, running
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import CLUSTERS, DEPLOYMENTS, NAMESPACES, OPERATING_SYSTEM_CONFIGS, SECRETS
from windowbox.rights import webhookconfigurations
from windowbox.settings.settings import Settings

NAMESPACE = "windowbox-system"
"""Where the sandbox, too, has certificates of webhooks."""
SHOOT_LABELS = {
    "gardener.cloud/role": "shoot",
    "shoot.gardener.cloud/provider": "local",
    "seed.gardener.cloud/provider": "local",
}
MUTATED = {"provider.extensions.gardener.cloud/mutated-by-controlplane-webhook": "true"}
PATIENCE = 120.0


def settings_for(
    plane: ControlPlane, bus: RoleServer | str, *, role: str = "admit", port: int = 0, **webhooks: Any
) -> Settings:
    """The settings of a process; of two with the same port, either answers."""
    port = port or processes.free_port()
    nats = {"url": bus}
    if isinstance(bus, RoleServer):
        nats = {"url": bus.url, "user": "admit", "password": bus.passwords["admit"]}
    return Settings.model_validate(
        {
            "nats": nats,
            "cluster": {"kubeconfig": str(plane.kubeconfigs[role])},
            "webhooks": {
                "address": f"127.0.0.1:{port}",
                "mode": "url",
                "url": f"127.0.0.1:{port}",
                "namespace": NAMESPACE,
                **webhooks,
            },
        }
    )


@contextlib.asynccontextmanager
async def admitted(settings: Settings, *, garden: bool = False) -> AsyncIterator[Admitting]:
    """A process that answers, and whose configurations are written."""
    async with admitting(settings, garden=garden) as made, running(made.run()):
        async with asyncio.timeout(PATIENCE):
            await made.keeping.configured.wait()
        yield made


@dataclass(frozen=True)
class Seed:
    """The cluster of an API server that asks webhooks."""

    kube: Kube

    async def shoot(self, name: str, *, cluster: bool = True) -> str:
        """A Shoot's namespace, and its Cluster."""
        metadata = {"name": name, "labels": SHOOT_LABELS}
        await self.kube.create(
            NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        )
        if cluster:
            await self.cluster(name)
        return name

    async def cluster(self, name: str) -> None:
        shoot = {"spec": {"kubernetes": {"version": "1.33.2"}, "provider": {"type": "local", "workers": []}}}
        body = {
            "apiVersion": "extensions.gardener.cloud/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": name},
            "spec": {"cloudProfile": {}, "seed": {}, "shoot": shoot},
        }
        await self.kube.create(CLUSTERS, "", body)

    async def scheduler(self, namespace: str, **patch: Any) -> Object:
        """A Deployment that the webhook `controlplane` labels."""
        return await self.kube.create(DEPLOYMENTS, namespace, deployment("kube-scheduler", **patch))

    async def asked(self, namespace: str) -> None:
        """Wait until the API server asks: it learns of configurations a moment after they are written."""

        async def asks() -> bool:
            try:
                made = await self.scheduler(namespace)
            except WindowboxError:  # it knows a configuration of before
                return False
            await self.kube.remove(DEPLOYMENTS, namespace, "kube-scheduler")
            return injected(made)

        await eventually(asks, PATIENCE)

    async def create_config(self, namespace: str, name: str, kubelet: str) -> Object:
        """An OperatingSystemConfig with the configuration of a kubelet."""
        file = {
            "path": "/var/lib/kubelet/config/kubelet",
            "content": {"inline": {"encoding": "", "data": kubelet}},
        }
        body = {
            "apiVersion": "extensions.gardener.cloud/v1alpha1",
            "kind": "OperatingSystemConfig",
            "metadata": {"name": name, "labels": MUTATED},
            "spec": {"type": "elsewhere", "purpose": "reconcile", "files": [file]},
        }
        return await self.kube.create(OPERATING_SYSTEM_CONFIGS, namespace, body)

    async def clear(self) -> None:
        """Have the API server ask nobody, and forget the certificates."""
        for resource in webhookconfigurations.RESOURCES.values():
            for found in (await self.kube.page(resource)).items:
                await self.kube.remove(resource, "", found["metadata"]["name"])
        ours = SECRETS._replace(selector="manager-identity")
        for found in (await self.kube.page(ours, namespace=NAMESPACE)).items:
            await self.kube.remove(SECRETS, NAMESPACE, found["metadata"]["name"])


def deployment(name: str, /, **metadata: Any) -> dict[str, Any]:
    labels = {"app": "kubernetes", "role": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": {**labels, **MUTATED}, **metadata},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": name, "image": "none"}]},
            },
        },
    }


def injected(object: Object) -> bool:
    """Whether the webhook `controlplane` has seen the Deployment."""
    labels: Mapping[str, str] = object.spec["template"]["metadata"]["labels"]
    return labels.get("injected-by") == "provider-local"


Act = Callable[[int], Awaitable[object]]


async def steadily(act: Act, rate: float, ended: asyncio.Event) -> int:
    """Do `act` so many times a second until the event; returns how many times. All have to succeed."""
    loop, number = asyncio.get_running_loop(), 0
    began = loop.time()
    async with asyncio.TaskGroup() as group:
        while not ended.is_set():
            group.create_task(_one(act, number))
            number += 1
            # The time between requests is what is asked for.
            await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
    return number


async def _one(act: Act, number: int) -> None:
    await act(number)
