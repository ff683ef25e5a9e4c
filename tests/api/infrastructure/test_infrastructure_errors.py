"""Infrastructures that cannot be made as they are, or whose place is taken; and forced deletions."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from bus import subjects
from bus.clusters.clusters import clusters
from bus.clusters.providers import Providers
from bus.clusters.registry import Registry
from bus.messages import Reason, Wish
from bus.transport.connection import connected
from bus.workqueue.pool import DeliveryHold, Item
from tests.api.infrastructure import infrastructures
from tests.api.infrastructure.infrastructures import behind, infrastructure
from tests.support import loopback
from tests.support.kindworld import CLOUDPROVIDER, Client, KindWorld
from tests.support.rules import rule
from windowbox.clients.kubernetes import kube
from windowbox.errors import Malformed, TransientError, Waiting
from windowbox.models.objects import Object
from windowbox.models.refs import (
    INFRASTRUCTURES,
    NAMESPACES,
    NETWORK_POLICIES,
    RUNTIME,
    SECRETS,
    ObjectRef,
    Resource,
)
from windowbox.settings.bussettings import Access
from windowbox.settings.cloudsettings import CloudSettings
from windowbox.settings.kindsettings import InfrastructureSettings
from workers.core.cloudaccounts import CloudAccounts
from workers.core.lifecycle.actuators import Run
from workers.core.lifecycle.shootfacts import ShootFacts
from workers.core.owned import marks
from workers.core.owned.targets import TargetClusters
from workers.core.recorder_live import LiveRecorder
from workers.kinds.infrastructure.cloudinfrastructures import CloudInfrastructures
from workers.kinds.infrastructure.infrastructurepool import InfrastructureActuator

pytestmark = [pytest.mark.serves("infrastructure"), pytest.mark.asyncio(loop_scope="module")]


async def _refused(shoot: Client, complaint: str) -> None:
    found = await shoot.until_failed(INFRASTRUCTURES, "local")
    error = found.status["lastError"]
    assert complaint in error["description"]
    assert error["codes"] == ["ERR_CONFIGURATION_PROBLEM"]
    assert await infrastructures.made(shoot) == []


async def test_a_shoot_without_networking_is_an_error(world: KindWorld) -> None:
    shoot = await world.shoot(spec={"networking": None})
    await infrastructure(shoot)
    await _refused(shoot, "spec.networking.nodes of the Shoot is not set: give it a CIDR")


async def test_an_empty_provider_config_is_none(world: KindWorld) -> None:
    shoot = await world.shoot()
    await infrastructure(shoot, providerConfig={})
    await shoot.until_ready(INFRASTRUCTURES, "local")


async def test_a_foreign_namespace_is_left_alone(world: KindWorld) -> None:
    shoot = await world.shoot()
    there = behind(shoot)
    await world.kube.create(NAMESPACES, "", {"metadata": {"name": there.namespace, "labels": {"a": "b"}}})
    theirs = await there.get(NAMESPACES, there.namespace)
    await infrastructure(shoot)
    found = await shoot.until_failed(INFRASTRUCTURES, "local")
    error = found.status["lastError"]
    assert error["codes"] == ["ERR_CONFIGURATION_PROBLEM"]
    assert (
        f"namespace {there.namespace} of the provider cluster belongs to another program: it has no label "
        "gardener.cloud/role=infra; delete it, or give it this label to have it taken over"
    ) in error["description"]
    assert await infrastructures.made(shoot) == [(NAMESPACES, there.namespace)]
    await shoot.delete(INFRASTRUCTURES, "local")
    await shoot.until_gone(INFRASTRUCTURES, "local")
    now = await there.get(NAMESPACES, there.namespace)
    assert theirs
    assert now
    assert now.metadata == theirs.metadata


@rule("B.31")
async def test_a_namespace_with_our_label_is_taken_over(world: KindWorld) -> None:
    shoot = await world.shoot()
    there = behind(shoot)
    labels = {"gardener.cloud/role": "infra", "a": "b"}
    theirs = await world.kube.create(
        NAMESPACES, "", {"metadata": {"name": there.namespace, "labels": labels}}
    )
    await infrastructures.ready(shoot)
    now = await there.get(NAMESPACES, there.namespace)
    assert now
    assert now.annotations.keys() == {marks.ANNOTATION}  # else it is not even written
    assert (now.uid, now.labels, now.spec) == (theirs.uid, theirs.labels, theirs.spec)
    assert await there.get(NETWORK_POLICIES, infrastructures.DENY)


async def test_a_namespace_that_gets_our_label_is_taken_over_by_event(world: KindWorld) -> None:
    shoot = await world.shoot()
    there = behind(shoot)
    await world.kube.create(NAMESPACES, "", {"metadata": {"name": there.namespace}})
    await infrastructure(shoot)
    await shoot.until_failed(INFRASTRUCTURES, "local")
    since, labels = datetime.now(UTC), {"gardener.cloud/role": "infra"}
    await there.merge(NAMESPACES, there.namespace, {"metadata": {"labels": labels}})
    await shoot.until_ready(INFRASTRUCTURES, "local")
    runs = (await world.recorded(since, "infrastructure")).runs
    reasons = [run.wish.reason for run in runs if shoot.namespace in run.key]
    assert reasons
    assert Reason.RETRY not in reasons  # an event requeued it


class Behind(LiveRecorder):
    """A recorder of a run for which the bus stands still at these objects."""

    known: Mapping[ObjectRef, Object]

    async def read(self, ref: ObjectRef) -> Object | None:
        return self.known.get(ref)


@contextlib.asynccontextmanager
async def run_behind(
    world: KindWorld, shoot: Client, *known: tuple[Resource, Object]
) -> AsyncIterator[tuple[InfrastructureActuator, Run]]:
    """An actuator, and a run of it that decides before the bus tells of more than what is known."""
    object = await shoot.create(INFRASTRUCTURES, "other", infrastructures.spec(shoot), operation=None)
    ref = ObjectRef(RUNTIME, INFRASTRUCTURES.id, shoot.namespace, "other")
    async with (
        connected(Access(world.nats.url, name="worker")) as bus,
        kube.from_file(world.plane.kubeconfigs["worker"]) as runtime,
        clusters(runtime, Registry(bus), loopback.SETTINGS) as opened,
    ):
        providers = Providers(opened, Registry(bus))
        recorder = Behind(
            bus, opened, Item(subjects.key(ref), Wish(reason=Reason.EVENT), 1, 1, DeliveryHold(60))
        )
        recorder.known = {
            ObjectRef(RUNTIME, kind.id, found.namespace, found.name): found for kind, found in known
        }
        shoot_facts = ShootFacts(technical_id=shoot.namespace, nodes=("10.0.0.0/16",))
        targets = TargetClusters(opened, providers)
        clouds = CloudInfrastructures(targets, CloudAccounts(bus, opened), CloudSettings())
        actuator = InfrastructureActuator(targets, InfrastructureSettings(), clouds)
        try:
            yield actuator, Run(ref, object, shoot_facts, recorder)
        finally:
            await providers.aclose()


@pytest.mark.serves
@pytest.mark.parametrize(
    ("labels", "finalizers", "error"),
    [
        pytest.param({}, [], Malformed, id="of-somebody-else"),
        pytest.param({}, ["example.com/held"], Waiting, id="on-its-way-out"),
        pytest.param({"gardener.cloud/role": "infra"}, [], None, id="ours"),
    ],
)
async def test_an_unknown_namespace_is_not_written(
    world: KindWorld,
    labels: dict[str, str],
    finalizers: list[str],
    error: type[Exception] | None,
) -> None:
    shoot = await world.shoot()
    there = behind(shoot)
    head = {"name": there.namespace, "labels": labels, "finalizers": finalizers}
    await world.kube.create(NAMESPACES, "", {"metadata": head})
    if finalizers:
        await there.delete(NAMESPACES, there.namespace)
    theirs = await there.get(NAMESPACES, there.namespace)
    async with run_behind(world, shoot) as (actuator, run):
        with pytest.raises(error) if error else contextlib.nullcontext():
            await actuator.reconcile(run)
    now = await there.get(NAMESPACES, there.namespace)
    assert theirs
    assert now
    assert _unmoved(now) == _unmoved(theirs)
    assert (marks.ANNOTATION in now.annotations) is (error is None)
    assert (len(await infrastructures.made(shoot)) == 1) is (error is not None)
    if finalizers:
        await there.merge(NAMESPACES, there.namespace, {"metadata": {"finalizers": None}})


@pytest.mark.serves
async def test_a_namespace_whose_end_the_bus_has_not_heard_of_is_waited_for(world: KindWorld) -> None:
    shoot = await world.shoot()
    there = behind(shoot)
    head = {
        "name": there.namespace,
        "labels": {"gardener.cloud/role": "infra"},
        "finalizers": ["a.com/b"],
    }
    former = await world.kube.create(NAMESPACES, "", {"metadata": head})
    await there.delete(NAMESPACES, there.namespace)
    async with run_behind(world, shoot, (NAMESPACES, former)) as (actuator, run):
        with pytest.raises(Waiting, match="waiting for the former Namespace"):
            await actuator.reconcile(run)
    assert await infrastructures.made(shoot) == [(NAMESPACES, there.namespace)]
    await there.merge(NAMESPACES, there.namespace, {"metadata": {"finalizers": None}})


@pytest.mark.serves
async def test_a_migration_takes_off_the_mark_of_a_former_secret_but_not_that_of_another_owner(
    world: KindWorld,
) -> None:
    shoot = await world.shoot()
    there = behind(shoot)
    async with run_behind(world, shoot) as (actuator, run):
        await actuator.reconcile(run)
        made = await there.get(NAMESPACES, there.namespace)
        mark = marks.parsed(made) if made else None
        assert mark
        former = mark._replace(uid="former", secret=mark.secret.model_copy(update={"name": "former"}))
        other = mark._replace(owner=mark.owner._replace(name="local"))
        for annotation in (former, other):
            patch = {"metadata": {"annotations": {marks.ANNOTATION: str(annotation)}}}
            await there.merge(NAMESPACES, there.namespace, patch)
            await actuator.migrate(run)
            now = await there.get(NAMESPACES, there.namespace)
            assert now
            assert (marks.ANNOTATION in now.annotations) is (annotation is other)


@pytest.mark.serves
async def test_a_migration_tries_once_more_where_the_provider_cluster_is_away(world: KindWorld) -> None:
    shoot = await world.shoot(kubeconfig=world.unreachable())
    async with run_behind(world, shoot) as (actuator, run):
        with pytest.raises(TransientError):
            await actuator.migrate(run)
        failed = {"lastOperation": {"type": "Migrate", "state": "Error"}}
        again = Object({**run.object.raw, "status": failed})
        await actuator.migrate(dataclasses.replace(run, object=again))


def _unmoved(namespace: Object) -> dict[str, Any]:
    """What of a namespace does not change by its going."""
    return {name: namespace.metadata.get(name) for name in ("uid", "labels", "finalizers")}


@pytest.mark.long  # lifecycle/test_contract_of_kinds.py loses the Secret, too
@rule("A.13", "B.17", "K-1")
async def test_without_the_provider_secret_a_deletion_fails_as_in_the_contract(world: KindWorld) -> None:
    _, reported = infrastructures.examples("A.13")
    shoot = await world.shoot()
    await infrastructures.ready(shoot)
    await shoot.kube.delete(SECRETS, shoot.namespace, CLOUDPROVIDER)
    await shoot.delete(INFRASTRUCTURES, "local")
    found = await shoot.until_failed(INFRASTRUCTURES, "local")
    last, error = dict(found.last_operation), dict(found.status["lastError"])
    assert last.pop("lastUpdateTime") == error.pop("lastUpdateTime")
    del (
        reported["status"]["lastOperation"]["lastUpdateTime"],
        reported["status"]["lastError"]["lastUpdateTime"],
    )
    assert last == reported["status"]["lastOperation"]
    assert error == reported["status"]["lastError"] | {"codes": ["ERR_INFRA_UNAUTHENTICATED"]}
    assert found.finalizers == ("extensions.gardener.cloud/infrastructure",)
    await shoot.secret(CLOUDPROVIDER, kubeconfig=world.kubeconfig())
    await shoot.ask(INFRASTRUCTURES, "local")
    await shoot.until_gone(INFRASTRUCTURES, "local")
    await infrastructures.until_nothing_is_left(shoot)
