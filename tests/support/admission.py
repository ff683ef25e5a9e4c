"""`windowbox admit` beside a real API server that calls it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from commands.roles.admitting import Admitting, admitting
from sandbox import processes
from tests.support.admitted import resource
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
_OF_LOCAL = {"shoot.gardener.cloud/provider": "local", "seed.gardener.cloud/provider": "local"}
SHOOT = {"labels": {"gardener.cloud/role": "shoot", **_OF_LOCAL}}
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
    cluster, address = {"kubeconfig": str(plane.kubeconfigs[role])}, f"127.0.0.1:{port}"
    hooks = {"address": address, "mode": "url", "url": address, "namespace": NAMESPACE, **webhooks}
    return Settings.model_validate({"nats": nats, "cluster": cluster, "webhooks": hooks})


@contextlib.asynccontextmanager
async def admitted(settings: Settings, *, garden: bool = False) -> AsyncIterator[Admitting]:
    """A running process whose configurations are written."""
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
        await self.kube.create(NAMESPACES, "", resource("v1 Namespace", name, "", metadata=SHOOT))
        if cluster:
            await self.cluster(name)
        return name

    async def cluster(self, name: str) -> None:
        shoot = {"spec": {"kubernetes": {"version": "1.33.2"}, "provider": {"type": "local", "workers": []}}}
        spec = {"cloudProfile": {}, "seed": {}, "shoot": shoot}
        made = resource("extensions.gardener.cloud/v1alpha1 Cluster", name, "", spec=spec)
        await self.kube.create(CLUSTERS, "", made)

    async def scheduler(self, namespace: str, **patch: Any) -> Object:
        """A Deployment that the webhook `controlplane` labels."""
        return await self.kube.create(DEPLOYMENTS, namespace, deployment("kube-scheduler", **patch))

    async def asked(self, namespace: str) -> None:
        """Wait until the API server calls us: it reads configurations a moment after they are written."""

        async def asks() -> bool:
            try:
                made = await self.scheduler(namespace)
            except WindowboxError:  # it still has an older configuration
                return False
            await self.kube.remove(DEPLOYMENTS, namespace, "kube-scheduler")
            return injected(made)

        await eventually(asks, PATIENCE)

    async def create_config(self, namespace: str, name: str, kubelet: str) -> Object:
        """An OperatingSystemConfig with the configuration of a kubelet."""
        content = {"inline": {"encoding": "", "data": kubelet}}
        file = {"path": "/var/lib/kubelet/config/kubelet", "content": content}
        spec = {"type": "elsewhere", "purpose": "reconcile", "files": [file]}
        kind, labels = "extensions.gardener.cloud/v1alpha1 OperatingSystemConfig", {"labels": MUTATED}
        made = resource(kind, name, namespace, metadata=labels, spec=spec)
        return await self.kube.create(OPERATING_SYSTEM_CONFIGS, namespace, made)

    async def clear(self) -> None:
        """Remove all webhook configurations and certificates."""
        for kind in webhookconfigurations.RESOURCES.values():
            for found in (await self.kube.page(kind)).items:
                await self.kube.remove(kind, "", found["metadata"]["name"])
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
