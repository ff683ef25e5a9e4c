"""A Machine owns its own Pod and node, never another one's, whatever labels say."""

from __future__ import annotations

import json

import pytest

from bus import subjects
from bus.messages import OPERATION, PREDECESSOR, UID, VERSION
from bus.transport.connection import connected
from tests.api.machine.machines import Machines, description, machines, phase_of
from tests.support.kindworld import KindWorld
from windowbox.models import machinekeys
from windowbox.models.refs import MACHINES, NAMESPACES, NODES, PODS, ObjectRef
from windowbox.settings.bussettings import Access
from workers.machines.machine.machineviews import TARGET

pytestmark = pytest.mark.serves("machine")


async def test_a_pod_of_another_control_plane_is_neither_taken_nor_deleted(made: Machines) -> None:
    await made.machine("first")
    await made.until("first", "Running")
    pod = await made.world.kube.get(PODS, made.infra, "machine-first")
    async with machines(made.world, joined=False) as other:
        # By mistake, both control planes have their machines in the same namespace.
        fields = other.class_body("shared")
        fields["providerSpec"]["namespace"] = made.infra
        await other.world.kube.merge(
            NAMESPACES, "", other.shoot.namespace, {"metadata": {"annotations": {TARGET: "none"}}}
        )
        await other.machine_class("shared", providerSpec=fields["providerSpec"])
        await other.machine("first", of="shared")
        told = await other.until_described("first", "belongs to Machine")
        assert f"belongs to Machine {made.shoot.namespace}/first" in description(told)
        await other.delete("first")
        await other.shoot.until_gone(MACHINES, "first")
    after = await made.world.kube.get(PODS, made.infra, "machine-first")
    assert (after.uid, after.annotations, after.deleting) == (pod.uid, pod.annotations, False)


async def test_a_label_does_not_lead_to_the_node_of_another_machine(made: Machines) -> None:
    await made.machine("victim")
    await made.machine("liar")
    await made.until("victim", "Running")
    await made.until("liar", "Running")
    await made.shoot.merge(MACHINES, "liar", {"metadata": {"labels": {"node": "machine-victim"}}})
    await made.delete("liar")
    await made.shoot.until_gone(MACHINES, "liar")
    await made.shoot.until_gone(NODES, "machine-liar")
    node = await made.world.kube.get(NODES, "", "machine-victim")
    assert not node.spec.get("unschedulable")
    assert not node.deleting
    assert phase_of(await made.shoot.get(MACHINES, "victim")) == "Running"


async def test_a_machine_of_a_class_that_never_was_can_be_deleted(made: Machines) -> None:
    await made.machine("typo", of="smal")
    await made.until("typo", "CrashLoopBackOff")
    await made.shoot.merge(MACHINES, "typo", {"metadata": {"finalizers": [machinekeys.FINALIZER]}})
    await made.delete("typo")
    await made.shoot.until_gone(MACHINES, "typo")


async def test_a_pod_in_another_provider_cluster_is_no_machines(world: KindWorld) -> None:
    """Whoever has a cluster that takes part may have Pods of any name there."""
    async with machines(world) as made:
        pod = {
            "metadata": {
                "name": "machine-prey",
                "namespace": made.infra,
                "uid": "forged",
                "labels": {"app": "machine", "machine": "prey", "machine-provider": "local"},
                "annotations": {"machine.windowbox/owner": f"{made.shoot.namespace}/prey"},
            },
            "spec": {},
            "status": {"phase": "Failed"},
        }
        ref = ObjectRef("provider-of-another", PODS.id, made.infra, "machine-prey")
        headers = {OPERATION: "ADDED", UID: "forged", VERSION: "1", PREDECESSOR: "0"}
        async with connected(Access(world.nats.url, name="forger")) as bus:
            await bus.publish(subjects.seen(ref), json.dumps(pod).encode(), headers)
        await made.machine("prey")
        await made.until("prey", "Running")
