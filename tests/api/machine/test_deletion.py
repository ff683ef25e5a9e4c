"""Deletion of machines: drains within disruption budgets, orphaned Pods and nodes, hibernation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio

from bus.clusters.clusters import Clusters
from bus.clusters.registry import Registry
from bus.transport.connection import Bus
from tests.api.machine.machines import Machines, description, machines
from tests.support.kindworld import Client, kind_world, world_of
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from windowbox.models import refs
from windowbox.models.objects import Object
from windowbox.models.refs import Resource
from windowbox.settings.clustersettings import JoinSettings
from windowbox.settings.kindsettings import KindSettings, MachineSettings
from workers import replay
from workers.core.owned.manifests import manifest
from workers.kinds.membership.clusterjoining import Joining

pytestmark = [pytest.mark.serves("machine"), pytest.mark.asyncio(loop_scope="module")]

BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
ALL_PODS = refs.PODS._replace(selector="")
FINALIZER = "machine.sapcloud.io/machine-controller-manager"
SECRET_FINALIZER = "machine.sapcloud.io/machine-controller"
FORCED = {"metadata": {"labels": {"force-deletion": "True"}}}


async def guest(made: Machines, name: str, node: str, **metadata: Any) -> Object:
    """A Pod of a user on a node of the Shoot."""
    spec = {"nodeName": node, "containers": [{"name": "x", "image": "x"}], "terminationGracePeriodSeconds": 0}
    head = {"name": name, "labels": {"app": "guest"}, **metadata}
    kube, home = made.world.kube, made.shoot.namespace
    await kube.create(ALL_PODS, home, {"metadata": head, "spec": spec})
    ready = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "conditions": [ready]}
    # Disruption budgets count only running Pods.
    return await kube.merge(ALL_PODS, home, name, {"status": status}, part="status")


@rule("B12-R4", "B12-R5", "B12-R8", "L2")
async def test_a_drain_respects_disruption_budgets(made: Machines) -> None:
    kube, home = made.world.kube, made.shoot.namespace
    await made.running("full")
    await guest(made, "guest", "machine-full")
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "guest"}}}
    await kube.create(BUDGETS, home, {"metadata": {"name": "b"}, "spec": spec})
    await made.delete("full")
    found = await made.until_described("full", "may not be evicted")
    assert "Initiate node drain" in description(found)
    node = await made.until_node("machine-full", lambda one: bool(one and one.spec.get("unschedulable")))
    reasons = {one["type"]: one["reason"] for one in node.status["conditions"]}
    assert reasons["Terminating"] == "ScaleDown"
    assert await made.pod("full")
    await kube.remove(BUDGETS, home, "b")
    await made.shoot.until_gone(refs.MACHINES, "full")
    assert await kube.find(ALL_PODS, home, "guest") is None


@rule("B12-R1")
async def test_a_label_forces_the_deletion(made: Machines) -> None:
    kube, home = made.world.kube, made.shoot.namespace
    await made.running("forced")
    await guest(made, "guest2", "machine-forced", finalizers=["test/kept"])
    for name, node in (("here", "machine-forced"), ("elsewhere", "machine-other")):
        attached = {"attacher": "csi.example", "nodeName": node, "source": {"persistentVolumeName": "v"}}
        await kube.create(refs.VOLUME_ATTACHMENTS, "", {"metadata": {"name": name}, "spec": attached})
    await made.delete("forced")
    await made.until_described("forced", "waiting for 1 Pod to leave")
    await made.shoot.merge(refs.MACHINES, "forced", FORCED)
    await made.shoot.until_gone(refs.MACHINES, "forced")
    await kube.merge(ALL_PODS, home, "guest2", {"metadata": {"finalizers": None}})
    assert await kube.find(refs.VOLUME_ATTACHMENTS, "", "here") is None
    await kube.remove(refs.VOLUME_ATTACHMENTS, "", "elsewhere")


@rule("B13", "B13-R5")
async def test_finalizers_hold_classes_and_secrets_in_use(made: Machines) -> None:
    async def until(resource: Resource, name: str, by: str, held: bool) -> None:
        await made.shoot.until(resource, name, lambda one: one is not None and (by in one.finalizers) == held)

    for name in ("userdata", "cloudprovider"):
        await until(refs.SECRETS, name, SECRET_FINALIZER, True)
    await made.machine("holder")
    await until(refs.MACHINE_CLASSES, "small", FINALIZER, True)
    await made.until("holder", "Running")
    await made.delete("holder")
    await until(refs.MACHINE_CLASSES, "small", FINALIZER, False)
    await made.world.kube.remove(refs.MACHINE_CLASSES, made.shoot.namespace, "small")
    for name in ("userdata", "cloudprovider"):
        await until(refs.SECRETS, name, SECRET_FINALIZER, False)


async def _orphan(made: Machines, name: str) -> None:
    labels = {"machine-provider": "local", "app": "machine", "machine": name}
    annotations = {"machine.windowbox/owner": f"{made.shoot.namespace}/{name}"}
    head = {"name": f"machine-{name}", "labels": labels, "annotations": annotations}
    made.simulator.held.add(f"machine-{name}")
    spec = {"containers": [{"name": "node", "image": "x"}]}
    await made.world.kube.create(refs.PODS, made.infra, {"metadata": head, "spec": spec})


@rule("B13-R1", "L42")
async def test_a_pod_without_a_machine_is_deleted(made: Machines) -> None:
    await made.running("watched")  # so that the provider cluster is watched
    await _orphan(made, "nobody")

    await made.world.client(made.infra).until_gone(refs.PODS, "machine-nobody")
    assert await made.pod("watched")


@rule("B13-R3")
async def test_a_node_whose_machine_was_taken_away_can_be_deleted(made: Machines) -> None:
    await made.joined("taken")
    await made.leave("taken")
    await made.world.kube.remove(refs.NODES, "", "machine-taken")
    await made.shoot.until_gone(refs.NODES, "machine-taken")


@rule("B13-R1")
@pytest.mark.parametrize("operation", ["migrate", "restore"])
async def test_pods_of_a_shoot_that_moves_are_kept(made: Machines, operation: str) -> None:
    secret = {"name": "cloudprovider", "namespace": made.shoot.namespace}
    spec = {"region": "local", "secretRef": secret, "pools": []}
    await made.shoot.create(refs.WORKERS, "moving", spec, operation=operation)
    await _orphan(made, "moving")
    await made.world.quiet()
    assert await made.pod("moving")


@rule("B13-R3")
async def test_a_node_stays_until_its_machine_has_ended(made: Machines) -> None:
    await made.joined("lost")
    await made.hold(refs.PODS, "machine-lost", "test/kept")
    await made.hold(refs.MACHINES, "lost", None)
    await made.end("lost")
    await made.touch("lost")
    await made.world.quiet()
    assert await made.find_node("lost")
    await made.hold(refs.PODS, "machine-lost", None)
    await made.simulator.until_gone("machine-lost")
    await made.simulator.node("machine-lost", Ready="Unknown")
    await made.shoot.until_gone(refs.NODES, "machine-lost")


@rule("B13-R3", "A15-R6")
async def test_pods_and_nodes_of_a_moving_shoot_are_kept(made: Machines) -> None:
    """The Cluster shows the migration before gardenlet deletes Worker and machines at the same time."""
    await made.joined("moved")
    await made.shoot.cluster(status={"lastOperation": {"type": "Migrate", "state": "Processing"}})
    await made.end("moved")
    await made.world.quiet()
    pod, node = await made.pod("moved"), await made.find_node("moved")
    assert node
    assert (pod.deleting, node.deleting, node.spec.get("unschedulable")) == (False, False, None)
    await made.remove_pod("moved")
    await made.simulator.until_gone("machine-moved")
    await made.touch("moved")
    await made.world.quiet()
    assert await made.find_node("moved")
    await made.hold(refs.NODES, "machine-moved", None)
    await made.world.kube.remove(refs.NODES, "", "machine-moved")


@rule("B7-R5")
async def test_a_restored_machine_takes_over_the_pod_that_runs(made: Machines) -> None:
    before = await made.running("moved")
    secret = await made.world.kube.get(refs.SECRETS, made.infra, "machine-moved-userdata")
    pod = await made.pod("moved")
    await made.leave("moved")
    body = manifest(refs.MACHINES, "moved", labels=before.labels, spec=before.spec)
    await made.world.kube.create(refs.MACHINES, made.shoot.namespace, body)
    await made.until("moved", "Running")
    after = await made.world.kube.get(refs.SECRETS, made.infra, "machine-moved-userdata")
    assert after.resource_version == secret.resource_version
    assert (await made.pod("moved")).uid == pod.uid


async def test_recorded_runs_replay_without_differences(made: Machines) -> None:
    began = datetime.now(UTC)
    await made.running("taped")
    await made.end("taped")
    await made.world.quiet()
    recording = await made.world.recorded(began, "machine")
    assert "BOOTSTRAP_TOKEN" not in repr(recording)
    result = await replay.replayed(recording)
    assert result.differences == []
    assert result.replayed >= 3
    # Other runs wait for the provider cluster: a run closes it during a drain, and opens it again.
    drain, drains = ("pods", "machine-taped"), 0
    for run in recording.runs:
        calls = [(call.door, call.request) for call in run.calls]
        after = [door for door, _ in calls[calls.index(drain) :]] if drain in calls else []
        drains += bool(after)
        assert "delete" not in after or "provider" in after[: after.index("delete")]
    assert drains


@rule("B13-R3")
@pytest.mark.serves("machine", kinds=KindSettings(machines=MachineSettings(creation_timeout=1.0)))
async def test_a_node_that_no_machine_claims_is_noted(made: Machines) -> None:
    noted = "node.machine.sapcloud.io/not-managed-by-mcm"
    held = {"name": "machine-stray", "finalizers": ["node.machine.sapcloud.io/machine-controller"]}
    await made.world.kube.create(refs.NODES, "", {"metadata": held})
    await made.running("known", creationTimeout="20m")
    await made.touch("stray")
    stray = await made.until_node("machine-stray", lambda one: bool(one and noted in one.annotations))
    assert stray.annotations[noted] == "1"
    assert stray.finalizers == ()
    known = await made.find_node("known")
    assert known
    assert noted not in known.annotations
    await made.machine("stray", creationTimeout="20m")
    await made.until_node("machine-stray", lambda one: bool(one and noted not in one.annotations))


@dataclass
class Sleeping:
    """The machines of a Shoot without a Deployment of its API server, and the member clusters."""

    made: Machines
    registry: Registry
    joined: list[Client] = field(default_factory=list)

    async def join(self, shoot: Client) -> None:
        """Make the cluster of the Shoot a member."""
        await shoot.secret("gardener", kubeconfig=shoot.world.kubeconfig("target"))
        await shoot.kube.merge(
            refs.NAMESPACES, "", shoot.namespace, _marks("gardener", f"infra-{shoot.namespace}")
        )
        self.joined.append(shoot)

    async def wake_all(self) -> None:
        """All tests share the API server: no Shoot of this one may join a later one's windowbox."""
        for shoot in self.joined:
            await shoot.cluster()  # machines that are left end with their nodes
        await eventually(lambda: not self.registry.asleep())
        for shoot in self.joined:
            await shoot.kube.merge(refs.NAMESPACES, "", shoot.namespace, _marks(None, None))

    async def hibernate(self, shoot: Client, *, complete: bool) -> None:
        """Write what gardenlet writes before machines are deleted, or afterwards."""
        await shoot.cluster(spec={"hibernation": {"enabled": True}}, status={"isHibernated": complete})

    async def until_asleep(self, shoot: Client) -> None:
        await eventually(lambda: shoot.namespace in self.registry.asleep())

    async def end(self, machine: str) -> None:
        """Delete a machine by force, as the Worker of a hibernating Shoot does."""
        await self.made.shoot.merge(refs.MACHINES, machine, FORCED)
        await self.made.end(machine)

    async def pod(self, name: str) -> Any:
        return await self.made.world.kube.find(ALL_PODS, self.made.shoot.namespace, name)


def _marks(kubeconfig: str | None, machines: str | None) -> dict[str, Any]:
    marks = {"cluster.windowbox/kubeconfig": kubeconfig, "cluster.windowbox/machines": machines}
    return {"metadata": {"annotations": marks}}


@pytest_asyncio.fixture(loop_scope="module")
async def sleeping(plane: ControlPlane, nats: NatsServer) -> AsyncIterator[Sleeping]:
    registries: list[Registry] = []

    async def joining(bus: Bus, opened: Clusters, registry: Registry) -> list[Any]:
        registries.append(registry)
        return [Joining(bus, registry, JoinSettings()).run()]

    async with (
        kind_world(plane, nats, "machine") as world,
        world_of(world, "worker", joining),
        machines(world, joined=False) as made,
    ):
        found = Sleeping(made, registries[0])
        await found.join(made.shoot)
        yield found
        await found.wake_all()


@rule("C-7", "B12-R1", "B12-R7")
async def test_a_shoot_is_awake_until_its_machines_have_ended(sleeping: Sleeping) -> None:
    made = sleeping.made
    await made.running("ends")
    await asyncio.gather(*(guest(made, f"guest-{number}", "machine-ends") for number in range(20)))
    other = await made.world.shoot()
    await sleeping.join(other)
    await sleeping.hibernate(made.shoot, complete=False)
    await sleeping.hibernate(other, complete=True)
    await sleeping.until_asleep(other)  # by then the first has been checked, too
    assert made.shoot.namespace not in sleeping.registry.asleep()
    await sleeping.end("ends")
    assert await made.find_node("ends") is None
    assert [await sleeping.pod(f"guest-{number}") for number in range(20)] == [None] * 20
    await sleeping.hibernate(made.shoot, complete=True)
    await sleeping.until_asleep(made.shoot)


@pytest.mark.long  # the test above hibernates, those before delete nodes that are left
@rule("B13-R3", "C-7")
async def test_nodes_left_by_a_hibernation_go_after_waking(sleeping: Sleeping) -> None:
    made = sleeping.made
    for name in ("left", "stays"):
        await made.running(name)
        await guest(made, f"guest-of-{name}", f"machine-{name}")
    await sleeping.hibernate(made.shoot, complete=True)
    await sleeping.until_asleep(made.shoot)
    await sleeping.end("left")  # the Shoot is unreachable
    assert await made.find_node("left")
    assert await sleeping.pod("guest-of-left")
    await made.shoot.cluster()
    await made.shoot.until_gone(refs.NODES, "machine-left")
    assert await sleeping.pod("guest-of-left") is None
    await made.world.quiet()
    assert await made.find_node("stays")
    assert await sleeping.pod("guest-of-stays")
