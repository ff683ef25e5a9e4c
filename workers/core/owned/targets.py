"""Target clusters: where owned objects are made; the owner's cluster, or one that a Secret leads to."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from bus.clusters.clusters import Clusters
from bus.clusters.providers import Providers
from windowbox.clients.kubernetes import identities
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Conflict, Missing, TransientError, Waiting
from windowbox.models.objects import Object
from windowbox.models.refs import CLUSTERS, RUNTIME, SECRETS, ObjectRef, Resource, SecretKey
from workers.core.lifecycle.kinds import Run
from workers.core.owned import manifests, marks
from workers.core.owned.manifests import Manifest
from workers.core.recorder import Recorder, at_once

MANAGER = "gardener-extension-provider-local"
"""Whose fields these are. The same name as before us, so that what was made then is ours to change."""


class TargetClusters:
    """The clusters that runs make objects in."""

    def __init__(self, clusters: Clusters, providers: Providers) -> None:
        self._clusters = clusters
        self.providers = providers
        self._uids: WeakKeyDictionary[Kube, str] = WeakKeyDictionary()

    async def installation(self) -> str:
        """What tells the objects that we have made from those of others; nothing if we may not know."""
        return await self._uid(RUNTIME)

    async def _uid(self, cluster: str) -> str:
        kube = await self._clusters.get(cluster)
        if not self._uids.get(kube):
            self._uids[kube] = await identities.own_uid(kube)
        return self._uids[kube]

    def own_cluster(self, run: Run) -> TargetCluster:
        """The cluster that the run's object is in."""
        return TargetCluster(run.ref.cluster, run.recorder, _LazyApi(self._clusters, run.ref.cluster))

    def member(self, cluster: str, recorder: Recorder) -> TargetCluster:
        """A cluster that takes part, such as that of a Shoot."""
        return TargetCluster(cluster, recorder, _LazyApi(self._clusters, cluster))

    async def shoot_cluster(self, run: Run) -> Object:
        """The Cluster of the run's object, as the API has it. gardenlet changes it just before it asks for a
        run: what the bus has may be a moment old, and a Shoot would fall asleep again that has just woken."""
        found = await self.find_shoot_cluster(run)
        if found is None:
            raise TransientError(f"the Cluster {run.ref.namespace} is not there yet")
        return found

    async def find_shoot_cluster(self, run: Run) -> Object | None:
        """The same; None if there is no Cluster."""
        name, target = run.ref.namespace, self.own_cluster(run)
        known = await target.cached(CLUSTERS, "", name)
        return await target.newer(CLUSTERS, "", name, than=known)

    @contextlib.asynccontextmanager
    async def provider(self, run: Run, namespace: str, name: str) -> AsyncIterator[TargetCluster]:
        """The cluster that the kubeconfig in a Secret of the object's cluster leads to."""
        try:
            async with contextlib.AsyncExitStack() as stack:
                connection = _LazyApi(self._clusters, run.ref.cluster)

                async def act() -> dict[str, str]:
                    opened = self.providers.opened(run.ref.cluster, namespace, name, run=run.ref)
                    provider = await stack.enter_async_context(opened)
                    connection.kube = provider.kube
                    secret = SecretKey(namespace=namespace, name=name)
                    mark = await self._mark(run, secret)
                    return {"cluster": provider.cluster, "mark": mark}

                found = await run.recorder.call("provider", {"secret": f"{namespace}/{name}"}, act)
                if isinstance(found, str):  # as it was noted before there were marks
                    found = {"cluster": found, "mark": ""}
                yield TargetCluster(found["cluster"], run.recorder, connection, mark=found["mark"])
        except TimeoutError as error:
            raise TransientError("stopped, because the provider cluster answers too slowly") from error

    async def _mark(self, run: Run, secret: SecretKey) -> str:
        if run.ref.kind not in marks.OWNERS:
            return ""
        return marks.of_run(run, await self.installation(), await self._uid(run.ref.cluster), secret)


@dataclass
class _LazyApi:
    """The API of a target, looked up when it is first needed."""

    clusters: Clusters
    cluster: str
    kube: Kube | None = None

    async def api(self) -> Kube:
        if self.kube is None:
            self.kube = await self.clusters.get(self.cluster)
        return self.kube


@dataclass(frozen=True)
class TargetCluster:
    """One cluster, as one run reaches it through its doors."""

    cluster: str
    recorder: Recorder
    connection: _LazyApi
    manager: str = MANAGER
    """As whose fields things are applied."""
    mark: str = ""
    """Whose everything is that is made here."""

    def ref(self, resource: Resource, namespace: str, name: str) -> ObjectRef:
        return ObjectRef(self.cluster, resource.id, namespace, name)

    async def cached(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """The object as the bus knows it. Only of kinds that are watched."""
        return await self.recorder.read(self.ref(resource, namespace, name))

    async def live(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """The object as the API has it. Not for Secrets: what is asked for here is noted."""

        async def act() -> Any:
            kube = await self.connection.api()
            found = await kube.find(resource, namespace, name)
            return _without_managed_fields(found) if found else None

        raw = await self.recorder.call("look", str(self.ref(resource, namespace, name)), act)
        return Object(raw) if raw else None

    async def newer(
        self, resource: Resource, namespace: str, name: str, *, than: Object | None
    ) -> Object | None:
        """The object as the API has it; of one that the bus knows, nothing more is noted."""

        async def act() -> Any:
            kube = await self.connection.api()
            found = await kube.find(resource, namespace, name)
            if found and than and found.resource_version == than.resource_version:
                return {"version": found.resource_version}
            return {"object": _without_managed_fields(found) if found else None}

        answer = await self.recorder.call("look", str(self.ref(resource, namespace, name)), act)
        if "object" not in answer:
            return than
        return Object(answer["object"]) if answer["object"] else None

    async def ensure(self, resource: Resource, wanted: Manifest) -> str:
        """See to it that the object is there and as wanted; nothing is written if it is. Returns its uid.

        Only for kinds that are watched; of them, only what the bus does not know to be right is written.
        """
        metadata = wanted["metadata"]
        found = await self.cached(resource, metadata.get("namespace", ""), metadata["name"])
        return await self.update(resource, found, wanted)

    async def update(self, resource: Resource, found: Object | None, wanted: Manifest) -> str:
        """Make what was found what is wanted. Returns its uid."""
        wanted = marks.marked(wanted, self.mark)
        if found and found.deleting:
            raise Waiting(f"waiting for the former {resource.kind} {found.name} to be gone")
        if found and not manifests.differs(resource, found, wanted):
            return found.uid
        return await self.apply(resource, wanted)

    async def update_metadata(self, resource: Resource, found: Object, wanted: Manifest) -> None:
        """Give what was found the labels and annotations that are wanted, and leave the rest as it is."""
        if found.deleting:
            raise Waiting(f"waiting for the former {resource.kind} {found.name} to be gone")
        head = {"metadata": marks.marked(wanted, self.mark)["metadata"]}
        if manifests.differs(resource, found, head):
            await self.merge(resource, found.namespace, found.name, head)

    async def apply(self, resource: Resource, wanted: Manifest) -> str:
        """Write the object: what is said here becomes ours, what others have said stays. Returns its uid."""
        wanted = marks.marked(wanted, self.mark)
        metadata = wanted["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]

        async def act() -> str:
            kube = await self.connection.api()
            applied = await kube.apply(resource, namespace, name, wanted, owner=self.manager)
            if (patch := manifests.excess(resource, applied, wanted)) is not None:
                await kube.merge(resource, namespace, name, patch)
            return applied.uid

        uid: str = await self._write(wanted, act)
        return uid

    async def ensure_secret(self, wanted: Manifest) -> None:
        """The same for a Secret with all its `data`. Secrets are not watched, so the API is asked."""
        wanted = marks.marked(wanted, self.mark)
        metadata = wanted["metadata"]

        async def act() -> bool:
            kube = await self.connection.api()
            found = await kube.find(SECRETS, metadata["namespace"], metadata["name"])
            if found and not manifests.differs(SECRETS, found, wanted):
                return False
            await kube.apply(SECRETS, metadata["namespace"], metadata["name"], wanted, owner=self.manager)
            return True

        await self._write(_without_data(wanted), act)

    async def apply_secret(self, wanted: Manifest) -> None:
        """Write a Secret without asking for it first."""
        metadata = wanted["metadata"]

        async def act() -> None:
            kube = await self.connection.api()
            await kube.apply(SECRETS, metadata["namespace"], metadata["name"], wanted, owner=self.manager)

        await self._write(_without_data(wanted), act)

    async def has_secret(self, namespace: str, name: str) -> bool:
        """Whether there is a Secret of this name. What it holds is not noted."""

        async def act() -> bool:
            kube = await self.connection.api()
            return await kube.find(SECRETS, namespace, name) is not None

        return bool(await self.recorder.call("look", str(self.ref(SECRETS, namespace, name)), act))

    async def _write(self, request: Manifest, act: Callable[[], Awaitable[Any]]) -> Any:
        return await self.recorder.call(
            "apply", {"cluster": self.cluster, "object": request}, act, effect=True
        )

    async def create_if_absent(self, resource: Resource, wanted: Manifest) -> str | None:
        """Make the object and return its uid. None if there is one, perhaps another's."""
        wanted = marks.marked(wanted, self.mark)
        metadata = wanted["metadata"]

        async def act() -> str | None:
            kube = await self.connection.api()
            try:
                made = await kube.create(resource, metadata.get("namespace", ""), wanted, owner=self.manager)
            except Conflict:
                return None
            return made.uid

        request = {"cluster": self.cluster, "object": wanted}
        uid: str | None = await self.recorder.call("claim", request, act, effect=True)
        return uid

    async def create(self, resource: Resource, wanted: Manifest) -> str:
        """Make one more object, whose name the API chooses. Returns the name."""

        async def act() -> str:
            kube = await self.connection.api()
            return (await kube.create(resource, wanted["metadata"].get("namespace", ""), wanted)).name

        request = {"cluster": self.cluster, "object": wanted}
        return str(await self.recorder.call("create", request, act, effect=True))

    async def finalizers(self, resource: Resource, namespace: str, name: str) -> list[str]:
        """Who holds on to the object, as the API has it. Nothing else of it is noted."""

        async def act() -> list[str]:
            kube = await self.connection.api()
            found = await kube.find(resource, namespace, name)
            return list(found.finalizers) if found else []

        return list(await self.recorder.call("finalizers", str(self.ref(resource, namespace, name)), act))

    async def merge(
        self, resource: Resource, namespace: str, name: str, patch: Mapping[str, Any], *, part: str = ""
    ) -> bool:
        """A JSON merge patch of the object, or of its subresource `part`. False if the object is gone.

        The patch is noted, so it must hold no secrets.
        """

        async def act() -> bool:
            kube = await self.connection.api()
            try:
                await kube.merge(resource, namespace, name, patch, part=part)
            except Missing:
                return False
            return True

        request = {"object": str(self.ref(resource, namespace, name)), "patch": patch}
        request |= {"part": part} if part else {}
        return bool(await self.recorder.call("merge", request, act, effect=True))

    async def merged(
        self, resource: Resource, namespace: str, name: str, patch: Mapping[str, Any]
    ) -> Object | None:
        """The same; returns the object as it is then, None if it is gone. Not for Secrets."""

        async def act() -> Any:
            kube = await self.connection.api()
            try:
                return _without_managed_fields(await kube.merge(resource, namespace, name, patch))
            except Missing:
                return None

        request = {"object": str(self.ref(resource, namespace, name)), "patch": patch}
        raw = await self.recorder.call("merge", request, act, effect=True)
        return Object(raw) if raw else None

    async def strategic_merge(
        self, resource: Resource, namespace: str, name: str, patch: Mapping[str, Any], *, part: str = ""
    ) -> bool:
        """A strategic merge patch of a built-in kind, or of its subresource. False if the object is gone."""

        async def act() -> bool:
            kube = await self.connection.api()
            try:
                await kube.strategic_merge(resource, namespace, name, patch, part=part)
            except Missing:
                return False
            return True

        request = {"object": str(self.ref(resource, namespace, name)), "patch": patch}
        return bool(await self.recorder.call("merge", request, act, effect=True))

    async def names_labelled(
        self, resource: Resource, namespace: str, labels: Mapping[str, str]
    ) -> list[str]:
        """The names of the objects with these labels, as the API has them."""
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        selected = resource._replace(selector=selector, within=namespace)

        async def act() -> list[str]:
            kube = await self.connection.api()
            return [one.name async for one in kube.objects(selected, metadata_only=True)]

        request = {"kind": resource.id, "namespace": namespace, "selector": selector}
        return list(await self.recorder.call("list", request, act))

    async def remove(
        self, resource: Resource, namespace: str, name: str, *, grace: int | None = None, uid: str = ""
    ) -> bool:
        """Delete the object, only if it has this uid where one is given; a Pod ends within `grace` seconds.

        False if it was gone already.
        """

        async def act() -> bool:
            kube = await self.connection.api()
            try:
                return await kube.remove(resource, namespace, name, grace=grace, uid=uid)
            except Conflict:
                if not uid:
                    raise
                return False  # another one has its name now

        ref = self.ref(resource, namespace, name)
        return bool(await self.recorder.call("delete", str(ref), act, effect=True))


AT_ONCE = 50
"""Requests to one API server that a run makes at once."""


async def in_batches(acts: Iterable[Awaitable[object]]) -> None:
    """Await all of them, however many they are."""
    left = iter(acts)
    while batch := list(itertools.islice(left, AT_ONCE)):
        await concurrently(*batch)


async def concurrently(*acts: Awaitable[object]) -> None:
    """Await all of them, each to its end. Raises what failed; that something is waited for, only else."""
    with at_once():
        results = await asyncio.gather(*acts, return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    for error in sorted(errors, key=lambda error: isinstance(error, Waiting)):
        raise error


def _without_managed_fields(object: Object) -> dict[str, Any]:
    metadata = {name: value for name, value in object.metadata.items() if name != "managedFields"}
    return {**object.raw, "metadata": metadata}


def _without_data(secret: Mapping[str, Any]) -> dict[str, Any]:
    """A Secret as it may be noted: by the names of what it holds."""
    kept = {name: value for name, value in secret.items() if name != "data"}
    return kept | {"keys": sorted(secret.get("data", {}))}
