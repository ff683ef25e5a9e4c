"""windowbox replaces Gardener's own provider-local while a Shoot exists, and is replaced again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from tests.api.bastion import bastions
from tests.api.bastion.bastions import Yard
from tests.api.controlplane import controlplanes
from tests.support import machinecontrollermanager, providerlocal, servers, workerexample
from tests.support.kindworld import CLOUDPROVIDER, Client, KindWorld, kind_world, ready
from tests.support.natsserver import NatsServer
from tests.support.resourcemanager import ResourceManager
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Conflict
from windowbox.kinds import POOLS
from windowbox.models import refs
from windowbox.models.objects import Object
from windowbox.models.refs import Resource
from windowbox.settings.kindsettings import (
    BackupSettings,
    ControlPlaneSettings,
    HeartbeatSettings,
    KindSettings,
)
from windowbox.settings.settings import WorkSettings

SOME = (
    "infrastructure", "operatingsystemconfig", "bastion", "local-ext-shoot", "backupbucket", "backupentry",
    "heartbeat",
)  # fmt: skip
ALL = (*SOME, "controlplane", "exposure", "worker")
"""Control planes and machines need further controllers of Gardener's own."""
MADE = (
    refs.NAMESPACES, refs.IP_POOLS, refs.NETWORK_POLICIES, refs.SECRETS, refs.SERVICES, refs.PODS,
    refs.MANAGED_RESOURCES, refs.MACHINE_CLASSES, refs.MACHINE_DEPLOYMENTS, refs.DEPLOYMENTS,
    refs.ENDPOINT_SLICES, refs.HEARTBEATS,
)  # fmt: skip
"""The kinds of objects that both programs create."""
RELEASE = "extension-provider-local-4f7xk"
COLLECTABLE = "resources.gardener.cloud/garbage-collectable-reference"
"""The label of Secrets whose names tell their content."""
RENEWED = "provider-local-dummy-auth"
"""A password that both programs renew after an hour at the latest."""
UNTIMED = {"lastOperation", "conditions", "machineDeploymentsLastUpdateTime"}


class Seen(NamedTuple):
    uid: str
    object: Object


Found = Mapping[tuple[str, str, str], Seen]


@dataclass
class Site:
    """A Shoot, its machines, and the folder of its backups."""

    plane: ControlPlane
    nats: NatsServer
    api: Kube
    shoot: Client
    folder: Path
    pools: tuple[str, ...]
    """What both programs serve in this test."""

    @property
    def backups(self) -> Path:
        return self.folder / "backups"

    @property
    def garden(self) -> Client:
        return self.shoot.world.client("garden")

    @property
    def yard(self) -> Yard:
        return Yard(self.shoot, self.shoot.world.client(f"infra-{self.shoot.namespace}"))

    def served(self) -> list[tuple[Resource, str]]:
        namespace = self.shoot.namespace
        every = [
            (refs.INFRASTRUCTURES, "local"), (refs.CONTROL_PLANES, "local"),
            (refs.OPERATING_SYSTEM_CONFIGS, "first"), (refs.OPERATING_SYSTEM_CONFIGS, "later"),
            (refs.BASTIONS, "cli"), (refs.EXPOSURES, "root"), (refs.EXTENSIONS, "local-ext-shoot"),
            (refs.WORKERS, "demo"), (refs.BACKUP_BUCKETS, namespace),
            (refs.BACKUP_ENTRIES, f"{namespace}--1234"),
        ]  # fmt: skip
        kinds = {POOLS[pool].resource for pool in self.pools}
        return [(resource, name) for resource, name in every if resource in kinds]

    @contextlib.contextmanager
    def by_go(self, run: str) -> Any:
        folder = self.folder / run
        with providerlocal.provider(folder, self.plane.kubeconfig, RELEASE, self.backups):
            yield

    @contextlib.asynccontextmanager
    async def by_windowbox(self) -> AsyncIterator[KindWorld]:
        kinds = KindSettings(
            backup=BackupSettings(root=self.backups, mount_path=str(self.backups)),
            controlplane=ControlPlaneSettings(ccm="deployment"),
            heartbeat=HeartbeatSettings(namespace=RELEASE),
        )
        async with kind_world(self.plane, self.nats, *self.pools, kinds=kinds) as world:
            await world.quiet()
            yield world
            await world.quiet()

    async def create(self) -> None:
        """As gardenlet does, and others play their parts."""
        secret = {"name": CLOUDPROVIDER, "namespace": self.shoot.namespace}
        reference = {"apiVersion": "v1", "kind": "Secret", **secret}
        node = {"nodeName": "machine-0", "addresses": [{"type": "InternalIP", "address": "10.0.130.5"}]}
        pool = workerexample.pool(minimum=0, maximum=0)
        await self.shoot.secret(pool["userDataSecretRef"]["name"], cloud_config=b"#!/bin/bash\n")
        await self.garden.secret("backup")
        at = {"region": "local", "secretRef": secret}
        kept = {"region": "local", "secretRef": {"name": "backup", "namespace": "garden"}}
        specs: dict[Resource, dict[str, Any]] = {
            refs.INFRASTRUCTURES: at,
            refs.CONTROL_PLANES: at,
            refs.BASTIONS: bastions.spec(),
            refs.EXPOSURES: {"credentialsRef": reference, "port": 443, "endpoints": [node]},
            refs.EXTENSIONS: {"type": "local-ext-shoot"},
            refs.WORKERS: at | {"pools": [pool]},
            refs.BACKUP_BUCKETS: kept,
            refs.BACKUP_ENTRIES: kept | {"bucketName": self.shoot.namespace},
        }
        purposes = {"first": {"purpose": "provision"}, "later": {"purpose": "reconcile"}}
        for resource, name in self.served():
            await self.shoot.create(resource, name, specs.get(resource) or purposes[name])
            if resource in (refs.INFRASTRUCTURES, refs.BACKUP_BUCKETS):
                await self.shoot.until_ready(resource, name)
        await asyncio.gather(self.yard.balanced(), self.yard.started())
        if "exposure" in self.pools:
            await self.yard.balanced("exposure-root")

    async def ask(self) -> None:
        for resource, name in self.served():
            await self.shoot.ask(resource, name)

    async def seen(self) -> Found:
        """The objects of the Shoot and of the release, once all served objects are ready."""
        while True:
            for resource, name in self.served():
                await self.shoot.until_ready(resource, name)
            found = await self._look()
            # Gardener's own program may reconcile an object again that was ready before.
            served = {(resource.kind, name) for resource, name in self.served()}
            if all(ready(one.object) for (kind, _, name), one in found.items() if (kind, name) in served):
                return found

    async def _look(self) -> Found:
        there = (self.shoot.namespace, self.yard.there.namespace, RELEASE)
        found: dict[tuple[str, str, str], Seen] = {}
        for resource in (*MADE, *dict.fromkeys(kind for kind, _ in self.served())):
            everyone = resource._replace(selector="")
            for raw in (await self.api.page(everyone, limit=5000)).items:
                one = Object(raw)
                if one.namespace in there or self.shoot.namespace in one.name:
                    found[resource.kind, one.namespace, one.name] = Seen(one.uid, one)
        return found


@pytest_asyncio.fixture
async def site(
    plane: ControlPlane, nats: NatsServer, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Site]:
    servers.need(providerlocal.PROGRAM)
    async with kube.from_file(plane.kubeconfig) as api:
        for name in (RELEASE, "garden"):
            with contextlib.suppress(Conflict):
                await api.create(refs.NAMESPACES, "", {"metadata": {"name": name}})
        world = KindWorld(plane, nats, api, KindSettings(), WorkSettings())
        about = {"name": "local", "namespace": "garden-local"}
        shoot = await world.shoot(cloudProfile=_profile(), metadata=about, spec=controlplanes.KUBERNETES)
        made = Site(plane, nats, api, shoot, tmp_path, request.param)
        made.backups.mkdir()
        async with contextlib.AsyncExitStack() as controllers:
            if made.pools == ALL:
                manager = machinecontrollermanager.manager(tmp_path, plane.kubeconfig, shoot.namespace)
                controllers.enter_context(manager)
                await controllers.enter_async_context(ResourceManager(shoot).at_work())
            yield made


def _profile() -> dict[str, Any]:
    """A profile with the fields that Gardener's own program needs for a Bastion."""
    profile = bastions.cloud_profile()
    profile["spec"]["machineTypes"][0] |= {"architecture": "amd64", "gpu": "0", "memory": "1Gi"}
    for version in profile["spec"]["machineImages"][0]["versions"]:
        version["architectures"] = ["amd64"]
    return profile


@pytest.mark.parametrize(
    "site",
    [pytest.param(SOME, id="some-kinds"), pytest.param(ALL, id="all-kinds", marks=pytest.mark.long)],
    indirect=True,
)
async def test_a_running_provider_is_replaced_and_comes_back(site: Site) -> None:
    with site.by_go("first"):
        await site.create()
        left = await site.seen()
    async with site.by_windowbox():
        _same_objects(left, await site.seen())
        # gardenlet requests this once a day.
        await site.ask()
        taken = await site.seen()
        _same_objects(left, taken)
        _same_status(left, taken)
        await site.yard.create("later")
        await site.yard.ready("later")
        taken = await site.seen()
    with site.by_go("second"):
        await site.ask()
        await site.shoot.ask(refs.BASTIONS, "later")
        await site.shoot.until_ready(refs.BASTIONS, "later")
        back = await site.seen()
        _same_objects(taken, back)
        _same_status(left, back)
        for resource, name in reversed(site.served()):
            # To delete a Worker, Gardener's own program needs the kubeconfig of a real Shoot.
            if resource != refs.WORKERS:
                await site.shoot.delete(resource, name)
                await site.shoot.until_gone(resource, name)


def _same_objects(before: Found, after: Found) -> None:
    """No object was recreated or removed, generated secrets included; finalizers are the same."""
    for key, (uid, object) in before.items():
        if COLLECTABLE in object.labels or key[2].startswith(RENEWED):
            continue
        assert key in after, f"{key} is gone"
        assert after[key].uid == uid, f"{key} was recreated"
        assert after[key].object.finalizers == object.finalizers, key


def _same_status(before: Found, after: Found) -> None:
    for key, (_, object) in before.items():
        if "lastOperation" in object.status:
            found = after[key].object
            now, former = (
                {k: v for k, v in one.status.items() if k not in UNTIMED} for one in (found, object)
            )
            assert now == former
            assert found.last_operation["description"] == object.last_operation["description"]
