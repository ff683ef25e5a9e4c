"""Deletion of a machine: its node is drained first, as budgets allow; orphans are deleted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from bus.messages import Call
from tests.api.machine.machines import Machines, description, machines
from tests.support.kindworld import KindWorld, kind_world
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from windowbox.errors import WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import (
    MACHINE_CLASSES,
    MACHINES,
    NODES,
    PODS,
    SECRETS,
    VOLUME_ATTACHMENTS,
    WORKERS,
    Resource,
)
from windowbox.settings.kindsettings import KindSettings, MachineSettings
from workers import replay

pytestmark = pytest.mark.serves("machine")

BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
ALL_PODS = PODS._replace(selector="")
FINALIZER = "machine.sapcloud.io/machine-controller-manager"
SECRET_FINALIZER = "machine.sapcloud.io/machine-controller"


async def guest(made: Machines, name: str, node: str, **metadata: Any) -> Object:
    """A Pod of a user on a node of the Shoot."""
    spec = {"nodeName": node, "containers": [{"name": "x", "image": "x"}], "terminationGracePeriodSeconds": 0}
    head = {"name": name, "labels": {"app": "guest"}, **metadata}
    kube, home = made.world.kube, made.shoot.namespace
    await kube.create(ALL_PODS, home, {"metadata": head, "spec": spec})
    ready = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "conditions": [ready]}
    # Of Pods that do not run, budgets say nothing.
    return await kube.merge(ALL_PODS, home, name, {"status": status}, part="status")


@rule("B12-R4", "B12-R5", "B12-R8", "L2")
async def test_a_node_is_emptied_as_budgets_allow(made: Machines) -> None:
    kube, home = made.world.kube, made.shoot.namespace
    await kube.create(
        ALL_PODS.__class__("", "v1", "serviceaccounts", "ServiceAccount"), home, {"metadata": {"name": "x"}}
    )
    await made.machine("full")
    await made.until("full", "Running")
    await guest(made, "guest", "machine-full")
    budget = {
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guest"}}},
    }
    await kube.create(BUDGETS, home, budget)
    await made.delete("full")
    found = await made.until_described("full", "may not be evicted")
    assert "Initiate node drain" in description(found)
    node = await made.until_node("machine-full", lambda one: bool(one and one.spec.get("unschedulable")))
    assert [one["reason"] for one in node.status["conditions"] if one["type"] == "Terminating"] == [
        "ScaleDown"
    ]
    assert await kube.find(PODS, made.infra, "machine-full")
    await kube.remove(BUDGETS, home, "b")
    await made.shoot.until_gone(MACHINES, "full")
    assert await kube.find(ALL_PODS, home, "guest") is None


@rule("B12-R1")
async def test_a_label_forces_the_deletion(made: Machines) -> None:
    kube, home = made.world.kube, made.shoot.namespace
    await made.machine("forced")
    await made.until("forced", "Running")
    await guest(made, "guest2", "machine-forced", finalizers=["test/kept"])
    for name, node in (("here", "machine-forced"), ("elsewhere", "machine-other")):
        attached = {"attacher": "csi.example", "nodeName": node, "source": {"persistentVolumeName": "v"}}
        await kube.create(VOLUME_ATTACHMENTS, "", {"metadata": {"name": name}, "spec": attached})
    await made.delete("forced")
    await made.until_described("forced", "waiting for 1 Pod to leave")
    label = {"metadata": {"labels": {"force-deletion": "True"}}}
    await made.shoot.merge(MACHINES, "forced", label)
    await made.shoot.until_gone(MACHINES, "forced")
    await kube.merge(ALL_PODS, home, "guest2", {"metadata": {"finalizers": None}})
    assert await kube.find(VOLUME_ATTACHMENTS, "", "here") is None
    await kube.remove(VOLUME_ATTACHMENTS, "", "elsewhere")


@rule("B13", "B13-R5")
async def test_classes_and_secrets_are_held_while_somebody_needs_them(made: Machines) -> None:
    kube, home = made.world.kube, made.shoot.namespace

    def held(by: str) -> Any:
        return lambda one: one is not None and by in one.finalizers

    def free(by: str) -> Any:
        return lambda one: one is not None and by not in one.finalizers

    for name in ("userdata", "cloudprovider"):
        await made.shoot.until(SECRETS, name, held(SECRET_FINALIZER))
    await made.machine("holder")
    await made.shoot.until(MACHINE_CLASSES, "small", held(FINALIZER))
    await made.until("holder", "Running")
    await made.delete("holder")
    await made.shoot.until(MACHINE_CLASSES, "small", free(FINALIZER))
    await kube.remove(MACHINE_CLASSES, home, "small")
    for name in ("userdata", "cloudprovider"):
        await made.shoot.until(SECRETS, name, free(SECRET_FINALIZER))


async def _orphan(made: Machines, name: str) -> None:
    labels = {"machine-provider": "local", "app": "machine", "machine": name}
    annotations = {"machine.windowbox/owner": f"{made.shoot.namespace}/{name}"}
    head = {"name": f"machine-{name}", "labels": labels, "annotations": annotations}
    made.simulator.held.add(f"machine-{name}")
    spec = {"containers": [{"name": "node", "image": "x"}]}
    await made.world.kube.create(PODS, made.infra, {"metadata": head, "spec": spec})


@rule("B13-R1", "L42")
async def test_a_pod_without_a_machine_is_deleted(made: Machines) -> None:
    await made.machine("watched")  # so that the provider cluster is watched
    await made.until("watched", "Running")
    await _orphan(made, "nobody")

    async def gone() -> bool:
        return await made.world.kube.find(PODS, made.infra, "machine-nobody") is None

    await eventually(gone)
    assert await made.world.kube.find(PODS, made.infra, "machine-watched")


@rule("B13-R3")
async def test_a_node_whose_machine_was_taken_away_can_be_deleted(made: Machines) -> None:
    await made.machine("taken")
    await made.until_node("machine-taken", lambda one: bool(one and one.finalizers))
    await made.until("taken", "Running")
    worker = {"type": "local", "region": "local", "secretRef": {"name": "cloudprovider"}, "pools": []}
    await made.shoot.create(WORKERS, "moving", worker, operation="migrate")
    await made.shoot.merge(MACHINES, "taken", {"metadata": {"finalizers": None}})
    await made.shoot.delete(MACHINES, "taken")
    await made.shoot.until_gone(MACHINES, "taken")
    await made.world.kube.remove(NODES, "", "machine-taken")
    await made.shoot.until_gone(NODES, "machine-taken")


@rule("B13-R3")
async def test_a_node_that_no_machine_claims_is_noted(plane: ControlPlane, nats: NatsServer) -> None:
    settings = KindSettings(machines=MachineSettings(creation_timeout=1.0))
    noted = "node.machine.sapcloud.io/not-managed-by-mcm"
    async with kind_world(plane, nats, "machine", kinds=settings) as world, machines(world) as made:
        held = {"name": "machine-stray", "finalizers": ["node.machine.sapcloud.io/machine-controller"]}
        await world.kube.create(NODES, "", {"metadata": held})
        await made.machine("known", creationTimeout="20m")
        await made.until("known", "Running")
        label = {"metadata": {"labels": {"seen": "true"}}}  # nodes are looked at when they change
        await world.kube.merge(NODES, "", "machine-stray", label)
        stray = await made.until_node("machine-stray", lambda one: bool(one and noted in one.annotations))
        assert stray.annotations[noted] == "1"
        assert stray.finalizers == ()
        known = await world.kube.get(NODES, "", "machine-known")
        assert noted not in known.annotations
        await made.machine("stray", creationTimeout="20m")
        await made.until_node("machine-stray", lambda one: bool(one and noted not in one.annotations))


@rule("B13-R1")
@pytest.mark.parametrize("operation", ["migrate", "restore"])
async def test_pods_of_a_shoot_that_moves_are_kept(made: Machines, operation: str) -> None:
    spec = {
        "type": "local",
        "region": "local",
        "secretRef": {"name": "cloudprovider", "namespace": made.shoot.namespace},
        "pools": [],
    }
    await made.shoot.create(WORKERS, "moving", spec, operation=operation)
    await _orphan(made, "moving")
    await made.world.quiet()
    assert await made.world.kube.find(PODS, made.infra, "machine-moving")


@rule("B13-R3")
async def test_a_node_stays_until_its_machine_has_ended(made: Machines) -> None:
    kube = made.world.kube
    await made.machine("lost")
    await made.until_node("machine-lost", lambda one: bool(one and one.finalizers))
    await made.until("lost", "Running")
    await kube.merge(PODS, made.infra, "machine-lost", {"metadata": {"finalizers": ["test/kept"]}})
    await made.shoot.merge(MACHINES, "lost", {"metadata": {"finalizers": None}})
    await made.delete("lost")
    await made.shoot.until_gone(MACHINES, "lost")
    await kube.merge(NODES, "", "machine-lost", {"metadata": {"labels": {"seen": "true"}}})
    await made.world.quiet()
    assert await kube.find(NODES, "", "machine-lost")
    await kube.merge(PODS, made.infra, "machine-lost", {"metadata": {"finalizers": None}})
    await made.simulator.until_gone("machine-lost")
    await made.simulator.node("machine-lost", Ready="Unknown")
    await made.shoot.until_gone(NODES, "machine-lost")


@rule("B13-R3", "A15-R6")
async def test_nodes_of_a_shoot_that_moves_are_kept(made: Machines) -> None:
    """Another seed has their machines, and their Pods may not be known here."""
    kube = made.world.kube
    await made.machine("moved")
    await made.until_node("machine-moved", lambda one: bool(one and one.finalizers))
    await made.until("moved", "Running")
    await made.shoot.cluster(status={"lastOperation": {"type": "Migrate", "state": "Processing"}})
    await made.delete("moved")
    await made.shoot.until_gone(MACHINES, "moved")
    await kube.remove(PODS, made.infra, "machine-moved")
    await made.simulator.until_gone("machine-moved")
    await kube.merge(NODES, "", "machine-moved", {"metadata": {"labels": {"seen": "true"}}})
    await made.world.quiet()
    assert await kube.find(NODES, "", "machine-moved")
    await kube.merge(NODES, "", "machine-moved", {"metadata": {"finalizers": None}})
    await kube.remove(NODES, "", "machine-moved")


@rule("A15-R6")
async def test_machines_of_a_shoot_that_moves_leave_their_pods_though_their_worker_is_gone(
    made: Machines,
) -> None:
    """gardenlet deletes the Worker and the machines at the same time; the Cluster tells before."""
    await made.machine("stays")
    await made.until("stays", "Running")
    await made.shoot.cluster(status={"lastOperation": {"type": "Migrate", "state": "Processing"}})
    await made.delete("stays")
    await made.shoot.until_gone(MACHINES, "stays")
    await made.world.quiet()
    pod = await made.world.kube.get(PODS, made.infra, "machine-stays")
    node = await made.world.kube.get(NODES, "", "machine-stays")
    assert not pod.deleting
    assert not node.deleting
    assert not node.spec.get("unschedulable")
    await made.shoot.cluster()
    await made.world.kube.merge(NODES, "", "machine-stays", {"metadata": {"finalizers": None}})
    await made.world.kube.remove(NODES, "", "machine-stays")


@rule("B7-R5")
async def test_a_restored_machine_takes_over_the_pod_that_runs(world: KindWorld) -> None:
    async with machines(world) as made:
        await made.machine("moved")
        before = await made.until("moved", "Running")
        secret = await world.kube.get(SECRETS, made.infra, "machine-moved-userdata")
        pod = await world.kube.get(PODS, made.infra, "machine-moved")
        worker = {"type": "local", "region": "local", "secretRef": {"name": "cloudprovider"}, "pools": []}
        await made.shoot.create(WORKERS, "moving", worker, operation="migrate")
        await made.shoot.merge(MACHINES, "moved", {"metadata": {"finalizers": None}})
        await made.shoot.delete(MACHINES, "moved")
        await made.shoot.until_gone(MACHINES, "moved")
        body = {
            "apiVersion": "machine.sapcloud.io/v1alpha1",
            "kind": "Machine",
            "metadata": {"name": "moved", "labels": before.labels},
            "spec": before.spec,
        }
        await world.kube.create(MACHINES, made.shoot.namespace, body)
        await made.until("moved", "Running")
        after = await world.kube.get(SECRETS, made.infra, "machine-moved-userdata")
        assert after.resource_version == secret.resource_version
        assert (await world.kube.get(PODS, made.infra, "machine-moved")).uid == pod.uid
        with pytest.raises(WindowboxError):
            await world.kube.get(NODES, "", "machine-nobody")


async def test_recorded_runs_do_the_same_again(world: KindWorld) -> None:
    began = datetime.now(UTC)
    async with machines(world) as made:
        await made.machine("taped")
        await made.until("taped", "Running")
        await made.delete("taped")
        await made.shoot.until_gone(MACHINES, "taped")
        await world.quiet()
    recording = await world.recorded(began, "machine")
    assert "BOOTSTRAP_TOKEN" not in repr(recording)
    result = await replay.replayed(recording)
    assert result.differences == []
    assert result.replayed >= 3
    # A drain is not in the turn of the provider cluster, which others wait for: it is opened again after it.
    drains = [run.calls for run in recording.runs if any(_drains(call) for call in run.calls)]
    for calls in drains:
        after = [call.door for call in calls[[_drains(call) for call in calls].index(True) :]]
        assert "delete" not in after or "provider" in after[: after.index("delete")]
    assert drains


def _drains(call: Call) -> bool:
    return call.door == "pods" and call.request == "machine-taped"
