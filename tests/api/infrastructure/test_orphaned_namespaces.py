"""Namespaces whose Infrastructure is gone are removed, though the bus knows nothing of it."""

from __future__ import annotations

from typing import Any

import pytest

from bus.clusters.clusters import Clusters
from bus.clusters.providers import Providers
from bus.clusters.registry import Registry
from bus.leases.leases import Leases
from bus.transport.connection import Bus
from tests.api.infrastructure import infrastructures
from tests.api.infrastructure.infrastructures import DENY, behind
from tests.support.kindworld import CLOUDPROVIDER, Client, KindWorld, common_of, kind_world, world_of
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from windowbox.models.refs import (
    BASTIONS,
    INFRASTRUCTURES,
    NAMESPACES,
    NETWORK_POLICIES,
    PODS,
    RUNTIME,
    SECRETS,
    SERVICES,
    ObjectRef,
    SecretKey,
)
from workers.core.owned import marks
from workers.core.owned.ownedorphans import OwnedOrphans
from workers.core.owned.targets import TargetClusters

_SECRET = SecretKey(namespace="nowhere", name="gone")


@pytest.fixture
def plane(other: ControlPlane) -> ControlPlane:
    """The one with few namespaces: in the other, all that other tests have left would be removed first."""
    return other


async def vanish(shoot: Client) -> None:
    """The Infrastructure goes past its finalizer, while nobody looks."""
    await shoot.merge(INFRASTRUCTURES, "local", {"metadata": {"finalizers": None}})
    await shoot.delete(INFRASTRUCTURES, "local")
    await shoot.until_gone(INFRASTRUCTURES, "local")


async def marked(there: Client, annotation: str | None) -> None:
    patch = {"metadata": {"annotations": {marks.ANNOTATION: annotation}}}
    await there.merge(NAMESPACES, there.namespace, patch)


def searching(world: KindWorld) -> Any:
    """A worker that looks for orphans without a pause."""

    async def assembled(bus: Bus, opened: Clusters, registry: Registry) -> list[Any]:
        providers = Providers(opened, registry)
        common = common_of(world, bus, opened, registry, TargetClusters(opened, providers))
        search = OwnedOrphans(bus, opened, common.targets, interval=0.2, grace=0, backoff=1)
        leases = Leases(bus, f"searching {id(bus)}", "work")
        return [leases.run(), leases.while_held("drift.infrastructure", search.run)]

    return world_of(world, "worker", assembled)


async def of_another_cluster(there: Client) -> str:
    """The mark as a cluster has made it that had the id of the owner's cluster before."""
    found = await there.get(NAMESPACES, there.namespace)
    mark = marks.parsed(found) if found else None
    assert mark
    return str(mark._replace(home="another-cluster"))


async def bastion_was_here(there: Client, mark: str) -> None:
    """What a Bastion has left that was lost with the bus."""
    installation, home, *_ = mark.split("/")
    owner = marks.Mark(installation, home, ObjectRef(RUNTIME, BASTIONS.id, "nowhere", "gone"), "u", _SECRET)
    head = {"name": "gone", "annotations": {marks.ANNOTATION: str(owner)}}
    await there.kube.create(SECRETS, there.namespace, {"metadata": head})
    ports = {"ports": [{"port": 22}]}
    await there.kube.create(SERVICES, there.namespace, {"metadata": head, "spec": ports})


async def machine_is_here(there: Client) -> None:
    containers = [{"name": "one", "image": "none"}]
    pod = {"metadata": {"name": "machine"}, "spec": {"containers": containers}}
    await there.kube.create(PODS, there.namespace, pod)


@rule("I-2")
async def test_only_what_nobody_wants_is_removed(plane: ControlPlane, nats: NatsServer) -> None:
    async with kind_world(plane, nats, "infrastructure") as world:
        names = [(await infrastructures.ready(await world.shoot())).namespace for _ in range(7)]
    async with kind_world(plane, nats) as world:
        shoots = [world.client(name.removeprefix("infra-")) for name in names]
        lost, used, foreign, elsewhere, moved, wanted, later = shoots
        for shoot in (lost, used, foreign, elsewhere, moved):
            await vanish(shoot)
        home = await behind(foreign).get(NAMESPACES, behind(foreign).namespace)
        assert home
        mark = str(home.annotations[marks.ANNOTATION])
        await marked(behind(foreign), mark.replace(mark.split("/")[0], "another-installation"))
        await marked(behind(elsewhere), await of_another_cluster(behind(elsewhere)))
        await marked(behind(moved), None)
        await machine_is_here(behind(used))
        await lost.secret(CLOUDPROVIDER, kubeconfig=world.unreachable())
        await bastion_was_here(behind(wanted), mark)
        nats.wipe()
        nats.start()
        async with searching(world):
            await infrastructures.until_nothing_is_left(lost)
            await behind(wanted).until_gone(SERVICES, "gone")
            assert await behind(wanted).get(SECRETS, "gone") is None
            await vanish(later)
            await infrastructures.until_nothing_is_left(later)  # by then all others have been looked at
        for shoot in (used, foreign, elsewhere, moved, wanted):
            there = await behind(shoot).get(NAMESPACES, behind(shoot).namespace)
            assert there
            assert not there.deleting
            assert await behind(shoot).get(NETWORK_POLICIES, DENY)
