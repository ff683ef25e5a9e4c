"""Grants the roles rights on Secrets in each namespace that windowbox serves, when it is created."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase

from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import PermanentError, WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import NAMESPACES, Resource
from windowbox.rights import rbac
from windowbox.settings.clustersettings import GrantSettings

logger = logging.getLogger(__name__)

_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
_OWNER = "windowbox-grant"
_PAUSE = 2.0


@dataclass(frozen=True)
class Granting:
    """Reconciles the RoleBindings of a cluster."""

    kube: Kube
    settings: GrantSettings

    async def once(self) -> str:
        """Create the wanted RoleBindings, and delete the others. Returns the resource version for a watch."""
        version = (await self.kube.page(NAMESPACES, limit=1)).resource_version
        labels = ",".join(f"{name}={value}" for name, value in rbac.granted(self.settings).items())
        bindings = self.kube.objects(_BINDINGS._replace(selector=labels))
        granted = {(one.namespace, one.name) async for one in bindings}
        for namespace, name in sorted(granted):
            if not self._serves(namespace):
                await self.kube.remove(_BINDINGS, namespace, name)
                logger.info("%s: taken back from namespace %s", name, namespace)
        async for found in self.kube.objects(NAMESPACES):
            await self._grant(found, granted)
        return version

    async def run(self) -> None:
        """Grant until cancelled: a listing first, and again after every gap of the watch."""
        while True:
            try:
                version = await self.once()
                async for events in self.kube.watch(NAMESPACES, version):
                    for event in events:
                        if event.type == "ADDED":
                            await self._grant(Object(event.object), set())
            except WindowboxError as error:
                logger.warning("%s; again in %s s", error, _PAUSE)
                await asyncio.sleep(_PAUSE)

    async def _grant(self, namespace: Object, granted: Collection[tuple[str, str]]) -> None:
        if not self._serves(namespace.name) or namespace.deleting:
            return
        for binding in rbac.namespaced(namespace.name, self.settings):
            name = binding["metadata"]["name"]
            if (namespace.name, name) in granted:
                continue
            try:
                await self.kube.apply(_BINDINGS, namespace.name, name, binding, owner=_OWNER)
                logger.info("%s: granted in namespace %s", name, namespace.name)
            except PermanentError as error:  # for instance, the namespace is being deleted
                logger.warning("%s", error)

    def _serves(self, namespace: str) -> bool:
        return any(fnmatchcase(namespace, pattern) for pattern in self.settings.namespaces)
