"""A simulator of gardener-resource-manager, for the ManagedResources of one namespace.

It does to them what the real one does as far as others can see it: it unpacks their Secrets, applies what
is in there with the labels that are asked for, says so in their conditions, and takes it away again unless it
is to be kept. All objects count as healthy once they are applied: there are no Pods here. What is meant for a
Shoot goes into the same cluster.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import brotli
import yaml

from tests.support.running import running
from windowbox.clients.kube import Kube
from windowbox.errors import Missing, TransientError
from windowbox.models.objects import Object
from windowbox.models.refs import MANAGED_RESOURCES, SECRETS, Resource

FINALIZER = "resources.gardener.cloud/gardener-resource-manager"
COLLECTABLE = "resources.gardener.cloud/garbage-collectable-reference=true"
REFERENCE = "reference.resources.gardener.cloud/"

SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
_WEBHOOKS = "admissionregistration.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_KINDS = {
    one.kind: one
    for one in (
        SERVICE_ACCOUNTS,
        DEPLOYMENTS,
        CONFIG_MAPS,
        Resource(_RBAC, "v1", "roles", "Role"),
        Resource(_RBAC, "v1", "rolebindings", "RoleBinding"),
        Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
        Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
        Resource(_WEBHOOKS, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False),
        Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False),
    )
}


@dataclass
class ResourceManager:
    """Works while `at_work`; how it works can be changed meanwhile, and holds from the next look on."""

    kube: Kube
    namespace: str
    slow: bool = False
    """It sees everything and does nothing yet."""
    failure: str = ""
    """Applying, and deleting, fails with these words."""

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[ResourceManager]:
        async with running(
            self._follow(MANAGED_RESOURCES, self._look), self._follow(SECRETS, self._look_again)
        ):
            yield self

    async def behave(self, *, slow: bool = False, failure: str = "") -> None:
        """From now on like this, and for what is there already."""
        self.slow, self.failure = slow, failure
        for raw in (await self.kube.page(self._here(MANAGED_RESOURCES))).items:
            await self._look(Object(raw))

    async def collect(self) -> list[str]:
        """Remove the Secrets that may go and that nobody refers to. Returns their names."""
        used = set()
        for raw in (await self.kube.page(self._here(MANAGED_RESOURCES))).items:
            used |= {v for k, v in Object(raw).annotations.items() if k.startswith(REFERENCE)}
        selected = self._here(SECRETS)._replace(selector=COLLECTABLE)
        unused = [Object(raw).name for raw in (await self.kube.page(selected)).items]
        unused = sorted(name for name in unused if name not in used)
        for name in unused:
            await self._release(name)
            await self.kube.delete(SECRETS, self.namespace, name)
        return unused

    async def _follow(self, resource: Resource, look: Callable[[Object], Awaitable[None]]) -> None:
        while True:
            page = await self.kube.page(self._here(resource))
            for raw in page.items:
                await look(Object(raw))
            with contextlib.suppress(TransientError):
                async for events in self.kube.watch(self._here(resource), page.resource_version):
                    for event in events:
                        if event.type in ("ADDED", "MODIFIED"):
                            await look(Object(event.object))

    def _here(self, resource: Resource) -> Resource:
        return resource._replace(within=self.namespace)

    async def _look_again(self, secret: Object) -> None:
        """A Secret is new, or another: those who refer to it may be better off now."""
        for raw in (await self.kube.page(self._here(MANAGED_RESOURCES))).items:
            if secret.name in _secrets(Object(raw)) and FINALIZER not in secret.finalizers:
                await self._look(Object(raw))

    async def _look(self, found: Object) -> None:
        # Whoever has changed it meanwhile, has it looked at again.
        with contextlib.suppress(TransientError, Missing):
            if self.slow:
                return
            await (self._let_go(found) if found.deleting else self._apply(found))

    async def _apply(self, found: Object) -> None:
        if FINALIZER not in found.finalizers:
            await self._merge(found, {"metadata": {"finalizers": [*found.finalizers, FINALIZER]}})
        if self.failure:
            return await self._say(found, "False", "ApplyFailed", self.failure)
        try:
            objects = [one for name in _secrets(found) for one in await self._unpacked(name)]
        except Missing as error:
            return await self._say(found, "False", "CannotReadSecret", str(error))
        for one in objects:
            labels = (one["metadata"].get("labels") or {}) | (found.spec.get("injectLabels") or {})
            body = {**one, "metadata": {**one["metadata"], "labels": labels}}
            resource, about = _KINDS[one["kind"]], one["metadata"]
            await self.kube.apply(
                resource, about.get("namespace", ""), about["name"], body, owner="gardener-resource-manager"
            )
        resources = [
            {"apiVersion": one["apiVersion"], "kind": one["kind"]}
            | {key: one["metadata"][key] for key in ("name", "namespace") if key in one["metadata"]}
            for one in objects
        ]
        return await self._say(found, "True", "ApplySucceeded", "All resources are applied.", resources)

    async def _let_go(self, found: Object) -> None:
        if FINALIZER not in found.finalizers:
            return
        if self.failure:
            await self._say(found, "False", "DeletionFailed", self.failure)
            return
        if not found.spec.get("keepObjects"):
            for one in found.status.get("resources") or []:
                await self.kube.delete(_KINDS[one["kind"]], one.get("namespace", ""), one["name"])
        for name in _secrets(found):
            await self._release(name)
        rest = [name for name in found.finalizers if name != FINALIZER]
        await self._merge(found, {"metadata": {"finalizers": rest}})

    async def _unpacked(self, name: str) -> list[dict[str, Any]]:
        secret = await self.kube.get(SECRETS, self.namespace, name)
        if FINALIZER not in secret.finalizers:
            patch = {"metadata": {"finalizers": [*secret.finalizers, FINALIZER]}}
            await self.kube.merge(SECRETS, self.namespace, name, patch)
        objects: list[dict[str, Any]] = []
        for key, value in sorted(secret.raw["data"].items()):
            content = base64.b64decode(value)
            if key.endswith(".br"):
                content = brotli.decompress(content)
            objects += [one for one in yaml.safe_load_all(content) if one]
        return objects

    async def _release(self, name: str) -> None:
        with contextlib.suppress(Missing):
            await self.kube.merge(SECRETS, self.namespace, name, {"metadata": {"finalizers": None}})

    async def _say(
        self, found: Object, applied: str, reason: str, message: str, resources: list[Any] | None = None
    ) -> None:
        told = [("Applied", applied, reason, message)]
        told.append(("Healthy", applied, reason, message))
        told.append(("Progressing", "False", reason, message))
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        times = {"lastTransitionTime": now, "lastUpdateTime": now}
        conditions = [
            {"type": f"Resources{type_}", "status": status, "reason": why, "message": words}
            for type_, status, why, words in told
        ]
        status: dict[str, Any] = {"observedGeneration": found.generation}
        if resources is not None:
            status["resources"] = resources
        known = [
            {key: value for key, value in one.items() if key not in times}
            for one in found.status.get("conditions") or []
        ]
        same = all(found.status.get(key) == value for key, value in status.items())
        if known != conditions or not same:
            status["conditions"] = [one | times for one in conditions]
            await self.kube.merge(
                MANAGED_RESOURCES, self.namespace, found.name, {"status": status}, part="status"
            )

    async def _merge(self, found: Object, patch: dict[str, Any]) -> None:
        locked = patch["metadata"] | {"resourceVersion": found.resource_version}
        await self.kube.merge(MANAGED_RESOURCES, self.namespace, found.name, {"metadata": locked})


def _secrets(found: Object) -> list[str]:
    return [ref["name"] for ref in found.spec["secretRefs"]]
