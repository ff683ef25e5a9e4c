"""Target clusters of owned objects: the owner's cluster, or that of a kubeconfig in a Secret."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from bus.clusters.clusters import Clusters
from bus.clusters.providers import Providers
from windowbox.clients.kubernetes import identities
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Conflict, Missing, TransientError, Waiting
from windowbox.models.objects import Object
from windowbox.models.refs import CLUSTERS, RUNTIME, SECRETS, ObjectRef, Resource, SecretKey
from workers.core.lifecycle.actuators import Run
from workers.core.owned import manifests, marks
from workers.core.owned.manifests import Manifest
from workers.core.owned.marks import Mark
from workers.core.recorder import Recorder, at_once

MANAGER = "gardener-extension-provider-local"
"""Field manager: that of Gardener's own program, so that we may change the objects that it created."""

T = TypeVar("T")


class TargetClusters:
    """The clusters in which runs create objects."""

    def __init__(self, clusters: Clusters, providers: Providers) -> None:
        self._clusters = clusters
        self.providers = providers
        self._uids: WeakKeyDictionary[Kube, str] = WeakKeyDictionary()

    async def installation(self) -> str:
        """The id of this installation, which tells our objects from those of others; empty if unreadable."""
        return await self._uid(RUNTIME)

    async def _uid(self, cluster: str) -> str:
        kube = await self._clusters.get(cluster)
        if not self._uids.get(kube):
            self._uids[kube] = await identities.own_uid(kube)
        return self._uids[kube]

    def own_cluster(self, run: Run) -> TargetCluster:
        """The cluster of the run's object."""
        return TargetCluster(run.ref.cluster, run.recorder, _LazyApi(self._clusters, run.ref.cluster))

    def member(self, cluster: str, recorder: Recorder) -> TargetCluster:
        """A cluster that has joined, such as that of a Shoot."""
        return TargetCluster(cluster, recorder, _LazyApi(self._clusters, cluster))

    async def shoot_cluster(self, run: Run) -> Object:
        """The Cluster of the run's object, from the API; TransientError if there is none.

        gardenlet changes the Cluster just before it requests a run, and the bus may lag: an old version
        would hibernate a Shoot again that has just woken up.
        """
        found = await self.find_shoot_cluster(run)
        if found is None:
            raise TransientError(f"the Cluster {run.ref.namespace} is not there yet")
        return found

    async def find_shoot_cluster(self, run: Run) -> Object | None:
        """The Cluster of the run's object, from the API; None if there is none."""
        name, target = run.ref.namespace, self.own_cluster(run)
        known = await target.cached(CLUSTERS, "", name)
        return await target.newer(CLUSTERS, "", name, than=known)

    @contextlib.asynccontextmanager
    async def provider(self, run: Run, namespace: str, name: str) -> AsyncIterator[TargetCluster]:
        """The cluster of the kubeconfig in a Secret of the object's cluster."""
        try:
            async with contextlib.AsyncExitStack() as stack:
                connection = _LazyApi(self._clusters, run.ref.cluster)

                async def open_cluster() -> dict[str, str]:
                    opened = self.providers.opened(run.ref.cluster, namespace, name, run=run.ref)
                    provider = await stack.enter_async_context(opened)
                    connection.kube = provider.kube
                    mark = ""
                    if run.ref.kind in marks.OWNERS:
                        secret = SecretKey(namespace=namespace, name=name)
                        installation, home = await self.installation(), await self._uid(run.ref.cluster)
                        if installation and home and run.object.uid:
                            mark = str(Mark(installation, home, run.ref, run.object.uid, secret))
                    return {"cluster": provider.cluster, "mark": mark}

                request = {"secret": f"{namespace}/{name}"}
                found = await run.recorder.call("provider", request, open_cluster)
                if isinstance(found, str):  # recordings from before there were marks
                    found = {"cluster": found, "mark": ""}
                yield TargetCluster(found["cluster"], run.recorder, connection, mark=found["mark"])
        except TimeoutError as error:
            raise TransientError("stopped, because the provider cluster answers too slowly") from error


@dataclass
class _LazyApi:
    """The API of a target, connected on first use: a replay never connects."""

    clusters: Clusters
    cluster: str
    kube: Kube | None = None

    async def api(self) -> Kube:
        if self.kube is None:
            self.kube = await self.clusters.get(self.cluster)
        return self.kube

    async def call(self, function: Callable[[Kube], Awaitable[T]]) -> T:
        return await function(await self.api())


@dataclass(frozen=True)
class TargetCluster:
    """One cluster, which one run reads and changes through its recorder."""

    cluster: str
    recorder: Recorder
    connection: _LazyApi
    manager: str = MANAGER
    """The field manager of server-side apply."""
    mark: str = ""
    """Owner annotation for the objects created here."""

    def ref(self, resource: Resource, namespace: str, name: str) -> ObjectRef:
        return ObjectRef(self.cluster, resource.id, namespace, name)

    async def cached(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """The object from the bus. Only for kinds that are watched."""
        return await self.recorder.read(self.ref(resource, namespace, name))

    async def live(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """The object from the API. Not for Secrets: the answer is recorded."""

        async def find(kube: Kube) -> Any:
            found = await kube.find(resource, namespace, name)
            return _without_managed_fields(found) if found else None

        raw = await self._call("look", str(self.ref(resource, namespace, name)), find)
        return Object(raw) if raw else None

    async def newer(
        self, resource: Resource, namespace: str, name: str, *, than: Object | None
    ) -> Object | None:
        """The object from the API. If the bus has the same version, only that is recorded."""

        async def find(kube: Kube) -> Any:
            found = await kube.find(resource, namespace, name)
            if found and than and found.resource_version == than.resource_version:
                return {"version": found.resource_version}
            return {"object": _without_managed_fields(found) if found else None}

        answer = await self._call("look", str(self.ref(resource, namespace, name)), find)
        if "object" not in answer:
            return than
        return Object(answer["object"]) if answer["object"] else None

    async def ensure(self, resource: Resource, wanted: Manifest) -> str:
        """Create or update the object; no write if the bus shows it as wanted. Returns its uid.

        Only for kinds that are watched.
        """
        metadata = wanted["metadata"]
        found = await self.cached(resource, metadata.get("namespace", ""), metadata["name"])
        return await self.update(resource, found, wanted)

    async def update(self, resource: Resource, found: Object | None, wanted: Manifest) -> str:
        """Write the object if `found` differs from it. Returns its uid."""
        wanted = self._marked(wanted)
        if found and found.deleting:
            raise Waiting(f"waiting for the former {resource.kind} {found.name} to be gone")
        if found and not manifests.differs(resource, found, wanted):
            return found.uid
        return await self.apply(resource, wanted)

    async def update_metadata(self, resource: Resource, found: Object, wanted: Manifest) -> None:
        """Set the wanted labels and annotations, and leave the rest."""
        if found.deleting:
            raise Waiting(f"waiting for the former {resource.kind} {found.name} to be gone")
        head = {"metadata": self._marked(wanted)["metadata"]}
        if manifests.differs(resource, found, head):
            await self.merge(resource, found.namespace, found.name, head)

    async def apply(self, resource: Resource, wanted: Manifest) -> str:
        """Server-side apply: the fields of `wanted` become ours, those of others stay. Returns the uid."""
        wanted = self._marked(wanted)
        metadata = wanted["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        ref = self.ref(resource, namespace, name)

        async def apply(kube: Kube) -> str:
            applied = await kube.apply(resource, namespace, name, wanted, owner=self.manager)
            # Apply leaves the fields of others, also where nobody but us may set any.
            self.recorder.wrote(ref, applied.resource_version)
            if (patch := manifests.excess(resource, applied, wanted)) is not None:
                applied = await kube.merge(resource, namespace, name, patch)
                self.recorder.wrote(ref, applied.resource_version)
            return applied.uid

        uid: str = await self._call("apply", {"cluster": self.cluster, "object": wanted}, apply, effect=True)
        return uid

    async def ensure_secret(self, wanted: Manifest) -> None:
        """Create or update a Secret with all its `data`. Secrets are not watched: this reads the API."""
        wanted = self._marked(wanted)
        metadata = wanted["metadata"]

        async def ensure(kube: Kube) -> bool:
            found = await kube.find(SECRETS, metadata["namespace"], metadata["name"])
            if found and not manifests.differs(SECRETS, found, wanted):
                return False
            await kube.apply(SECRETS, metadata["namespace"], metadata["name"], wanted, owner=self.manager)
            return True

        request = {"cluster": self.cluster, "object": _without_data(wanted)}
        await self._call("apply", request, ensure, effect=True)

    async def apply_secret(self, wanted: Manifest) -> None:
        """Write a Secret without a read before."""
        metadata = wanted["metadata"]

        async def apply(kube: Kube) -> None:
            await kube.apply(SECRETS, metadata["namespace"], metadata["name"], wanted, owner=self.manager)

        request = {"cluster": self.cluster, "object": _without_data(wanted)}
        await self._call("apply", request, apply, effect=True)

    async def has_secret(self, namespace: str, name: str) -> bool:
        """Whether there is a Secret of this name. Its content is not recorded."""

        async def exists(kube: Kube) -> bool:
            return await kube.find(SECRETS, namespace, name) is not None

        return bool(await self._call("look", str(self.ref(SECRETS, namespace, name)), exists))

    async def create_if_absent(self, resource: Resource, wanted: Manifest) -> str | None:
        """Create the object and return its uid. None if there is one of this name, perhaps another's."""
        wanted = self._marked(wanted)
        namespace = wanted["metadata"].get("namespace", "")

        async def create(kube: Kube) -> str | None:
            try:
                return (await kube.create(resource, namespace, wanted, owner=self.manager)).uid
            except Conflict:
                return None

        request = {"cluster": self.cluster, "object": wanted}
        uid: str | None = await self._call("claim", request, create, effect=True)
        return uid

    async def create(self, resource: Resource, wanted: Manifest) -> str:
        """Create one more object, for which the API generates a name. Returns the name."""

        async def create(kube: Kube) -> str:
            return (await kube.create(resource, wanted["metadata"].get("namespace", ""), wanted)).name

        request = {"cluster": self.cluster, "object": wanted}
        return str(await self._call("create", request, create, effect=True))

    async def finalizers(self, resource: Resource, namespace: str, name: str) -> list[str]:
        """The object's finalizers, from the API. Nothing else of it is recorded."""

        async def find(kube: Kube) -> list[str]:
            found = await kube.find(resource, namespace, name)
            return list(found.finalizers) if found else []

        return list(await self._call("finalizers", str(self.ref(resource, namespace, name)), find))

    async def merge(
        self, resource: Resource, namespace: str, name: str, patch: Mapping[str, Any], *, part: str = ""
    ) -> bool:
        """A JSON merge patch of the object, or of its subresource `part`. False if the object is gone.

        The patch is recorded, so it must hold no secrets.
        """

        async def merge(kube: Kube) -> bool:
            try:
                await kube.merge(resource, namespace, name, patch, part=part)
            except Missing:
                return False
            return True

        request = {"object": str(self.ref(resource, namespace, name)), "patch": patch}
        request |= {"part": part} if part else {}
        return bool(await self._call("merge", request, merge, effect=True))

    async def merged(
        self, resource: Resource, namespace: str, name: str, patch: Mapping[str, Any]
    ) -> Object | None:
        """Like `merge`; returns the patched object, None if it is gone. Not for Secrets."""

        async def merge(kube: Kube) -> Any:
            try:
                return _without_managed_fields(await kube.merge(resource, namespace, name, patch))
            except Missing:
                return None

        request = {"object": str(self.ref(resource, namespace, name)), "patch": patch}
        raw = await self._call("merge", request, merge, effect=True)
        return Object(raw) if raw else None

    async def strategic_merge(
        self, resource: Resource, namespace: str, name: str, patch: Mapping[str, Any], *, part: str = ""
    ) -> bool:
        """A strategic merge patch of a built-in kind, or of its subresource. False if the object is gone."""

        async def merge(kube: Kube) -> bool:
            try:
                await kube.strategic_merge(resource, namespace, name, patch, part=part)
            except Missing:
                return False
            return True

        request = {"object": str(self.ref(resource, namespace, name)), "patch": patch}
        return bool(await self._call("merge", request, merge, effect=True))

    async def names_labelled(
        self, resource: Resource, namespace: str, labels: Mapping[str, str]
    ) -> list[str]:
        """The names of the objects with these labels, from the API."""
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        selected = resource._replace(selector=selector, within=namespace)

        async def names(kube: Kube) -> list[str]:
            return [one.name async for one in kube.objects(selected, metadata_only=True)]

        request = {"kind": resource.id, "namespace": namespace, "selector": selector}
        return list(await self._call("list", request, names))

    async def remove(
        self, resource: Resource, namespace: str, name: str, *, grace: int | None = None, uid: str = ""
    ) -> bool:
        """Delete the object, with `uid` only the one with this uid; a Pod ends within `grace` seconds.

        False if it was gone already.
        """

        async def remove(kube: Kube) -> bool:
            try:
                return await kube.remove(resource, namespace, name, grace=grace, uid=uid)
            except Conflict:
                if not uid:
                    raise
                return False  # another object has the name now

        return bool(await self._call("delete", str(self.ref(resource, namespace, name)), remove, effect=True))

    def _marked(self, wanted: Manifest) -> Manifest:
        """The manifest with the owner annotation."""
        if not self.mark:
            return wanted
        metadata = wanted["metadata"]
        annotations = {**metadata.get("annotations", {}), marks.ANNOTATION: self.mark}
        return {**wanted, "metadata": {**metadata, "annotations": annotations}}

    async def _call(
        self, door: str, request: Any, function: Callable[[Kube], Awaitable[Any]], *, effect: bool = False
    ) -> Any:
        return await self.recorder.call(door, request, self.connection.call, function, effect=effect)


AT_ONCE = 50
"""Concurrent requests of one run to one API server."""


async def in_batches(acts: Iterable[Awaitable[object]]) -> None:
    """Await all of them, `AT_ONCE` at a time."""
    left = iter(acts)
    while batch := list(itertools.islice(left, AT_ONCE)):
        await concurrently(*batch)


async def concurrently(*acts: Awaitable[object]) -> None:
    """Await all of them, each to its end. Raises the first error; `Waiting` only if there is no other."""
    with at_once():
        results = await asyncio.gather(*acts, return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    for error in sorted(errors, key=lambda error: isinstance(error, Waiting)):
        raise error


def _without_managed_fields(object: Object) -> dict[str, Any]:
    metadata = {name: value for name, value in object.metadata.items() if name != "managedFields"}
    return {**object.raw, "metadata": metadata}


def _without_data(secret: Mapping[str, Any]) -> dict[str, Any]:
    """A Secret as it may be recorded: with the names of its keys only."""
    kept = {name: value for name, value in secret.items() if name != "data"}
    return kept | {"keys": sorted(secret.get("data", {}))}
