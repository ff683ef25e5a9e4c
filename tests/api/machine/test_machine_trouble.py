"""Machines that cannot be made, or do not join: what their status says, and how they recover."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.api.machine.machines import EVENTS, description, join, machines, phase_of
from tests.support.kindworld import KindWorld
from tests.support.rules import rule
from tests.support.running import eventually
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_CLASSES, MACHINES, NAMESPACES, PODS
from workers import replay
from workers.machines.machine.machineviews import TARGET

pytestmark = pytest.mark.serves("machine")


@rule("B6-R4", "B5", "L13", "L41")
async def test_a_wrong_class_is_told_and_its_correction_is_noticed(world: KindWorld) -> None:
    async with machines(world) as made:
        await made.machine("early", of="later")
        found = await made.until("early", "CrashLoopBackOff")
        assert "MachineClass later does not exist: create it" in description(found)
        assert found.last_operation["errorCode"] == "InvalidArgument"
        assert description(found).startswith(
            "Cloud provider message - machine codes error: code = [InvalidArgument]"
        )
        await made.machine_class("later", providerSpec={"namespace": made.infra})
        await made.until_described("early", "providerSpec.image is missing: give it the image of the machine")
        spec = {"providerSpec": {"image": "example/node:1"}}
        await made.shoot.merge(MACHINE_CLASSES, "later", spec)
        await made.until("early", "Running")


@rule("L3")
async def test_why_a_machine_is_not_there_is_said_in_its_status_and_in_events(world: KindWorld) -> None:
    async with machines(world, joins=False) as made:
        made.simulator.held.add("machine-stuck")
        machine = await made.machine("stuck")
        await made.until("stuck", "Pending")
        unscheduled = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/1 nodes",
        }
        await made.simulator.status("machine-stuck", conditions=[unscheduled])
        await made.until_described("stuck", "Pod machine-stuck cannot be scheduled (0/1 nodes): make room")
        waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
        container = {
            "name": "node",
            "image": "example/node:1",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
        }
        await made.simulator.status(
            "machine-stuck", conditions=[], containerStatuses=[container | {"state": {"waiting": waiting}}]
        )
        await made.until_described("stuck", "image example/node:1 cannot be pulled")

        async def told() -> bool:
            page = await world.kube.page(EVENTS, limit=5000)
            mine = [one for one in page.items if one["involvedObject"].get("uid") == machine.uid]
            return {"Unschedulable", "ImageNotPulled"} <= {one["reason"] for one in mine}

        await eventually(told)
        pod = await world.kube.get(PODS, made.infra, "machine-stuck")
        await made.simulator.running(pod)
        await made.simulator.node("machine-stuck", Ready="False")
        await made.until_described("stuck", "node machine-stuck is not ready")
        await made.simulator.node("machine-stuck")
        await made.until("stuck", "Running")


@rule("B9-R7", "B9")
async def test_a_machine_that_never_joins_fails_at_its_deadline(world: KindWorld) -> None:
    async with machines(world, joins=False) as made:
        await made.machine("never", creationTimeout="3s")
        found = await made.until("never", "Failed")
        assert description(found).startswith("Machine never failed to join the cluster in 0.05 minutes.")


@rule("B8-R6")
async def test_a_machine_waits_until_its_shoot_is_known_or_marked_as_none(world: KindWorld) -> None:
    async with machines(world, joined=False) as made:
        await made.machine("lone")
        await made.until_described("lone", "the Shoot's API server is not known yet: annotate Namespace")
        mark = {"metadata": {"annotations": {TARGET: "none"}}}
        await world.kube.merge(NAMESPACES, "", made.shoot.namespace, mark)
        found = await made.until("lone", "Available")
        addresses = [
            {"type": "Hostname", "address": "machine-lone"},
            {"type": "InternalIP", "address": "10.9.0.1"},
        ]
        assert found.status["addresses"] == addresses
        await made.delete("lone")
        await made.shoot.until_gone(MACHINES, "lone")


@rule("B8-R2")
async def test_a_machine_is_made_as_soon_as_its_shoot_joins(world: KindWorld) -> None:
    began = datetime.now(UTC)
    async with machines(world, joined=False) as made:
        await made.machine("early")
        await made.until_described("early", "the Shoot's API server is not known yet")
        await join(made)
        await made.until("early", "Running")
        await world.quiet()
    result = await replay.replayed(await world.recorded(began, "machine"))
    assert result.differences == []


@rule("B4-R7", "L4")
async def test_a_pod_that_was_deleted_before_it_joined_is_made_again(world: KindWorld) -> None:
    async with machines(world, joins=False) as made:
        await made.machine("again")
        await made.until("again", "Pending")
        first = await world.kube.get(PODS, made.infra, "machine-again")
        await world.kube.remove(PODS, made.infra, "machine-again")

        async def another() -> Object | None:
            found = await world.kube.find(PODS, made.infra, "machine-again")
            return found if found and found.uid != first.uid else None

        await eventually(another, patience=60.0)
        await made.simulator.node("machine-again")
        await made.until("again", "Running")


@rule("B9-R4", "L3")
async def test_a_machine_whose_pod_was_deleted_fails_at_once(world: KindWorld) -> None:
    async with machines(world) as made:
        await made.machine("lost")
        await made.until("lost", "Running")
        await world.kube.remove(PODS, made.infra, "machine-lost")
        await made.simulator.node("machine-lost", Ready="Unknown")
        found = await made.until("lost", "Failed")
        assert description(found).startswith(
            f"Machine lost is lost: Pod {made.infra}/machine-lost is gone from the provider cluster: "
        )


@rule("B9-R4", "L3", "B12-R1")
async def test_a_machine_whose_pod_was_evicted_fails_and_goes_at_once(world: KindWorld) -> None:
    async with machines(world) as made:
        await made.machine("full")
        await made.until("full", "Running")
        pod = {"spec": {"nodeName": "machine-full", "containers": [{"name": "a", "image": "a"}]}}
        await made.shoot.kube.create(PODS, "default", {"metadata": {"name": "on-full"}, **pod})
        message = 'Usage of EmptyDir volume "containerd" exceeds the limit "1Gi".'
        await made.simulator.status("machine-full", phase="Failed", reason="Evicted", message=message)
        await made.simulator.node("machine-full", Ready="Unknown")
        found = await made.until("full", "Failed")
        assert f"Pod machine-full was evicted ({message}): give its pool a larger volume" in description(
            found
        )
        # Its kubelet, which would let the Pod on it go, has ended with it.
        await made.delete("full")
        await made.shoot.until_gone(MACHINES, "full")
        await world.kube.remove(PODS, "default", "on-full", grace=0)


@rule("B9-R4")
async def test_a_machine_whose_pod_is_there_waits_for_its_timeout(world: KindWorld) -> None:
    async with machines(world) as made:
        await made.machine("slow")
        await made.until("slow", "Running")
        await made.simulator.node("machine-slow", Ready="Unknown")
        await made.until("slow", "Unknown")
        await world.quiet()
        assert phase_of(await made.shoot.get(MACHINES, "slow")) == "Unknown"
        await world.kube.remove(PODS, made.infra, "machine-slow")
        await made.until("slow", "Failed")


async def test_a_loss_is_named_where_no_timeout_ends_it(world: KindWorld) -> None:
    async with machines(world) as made:
        await made.machine("kept", disableHealthTimeout=True)
        await made.until("kept", "Running")
        await made.simulator.node("machine-kept", Ready="Unknown")
        await made.until("kept", "Unknown")
        await world.kube.remove(PODS, made.infra, "machine-kept")
        found = await made.until_described("kept", f"Pod {made.infra}/machine-kept is gone")
        assert phase_of(found) == "Unknown"


async def test_a_class_that_leads_elsewhere_loses_no_machine(world: KindWorld) -> None:
    async with machines(world) as made:
        await made.machine("safe")
        await made.until("safe", "Running")
        elsewhere = {"providerSpec": {"namespace": "nowhere"}}
        await made.shoot.merge(MACHINE_CLASSES, "small", elsewhere)
        # Without the label that it is watched by, the bus does not show that it is there.
        await world.kube.merge(PODS, made.infra, "machine-safe", {"metadata": {"labels": {"app": None}}})
        await world.quiet()
        await made.simulator.node("machine-safe", Ready="Unknown")
        await made.until("safe", "Unknown")
        await world.quiet()
        found = await made.shoot.get(MACHINES, "safe")
        assert phase_of(found) == "Unknown"
        assert "is gone" not in description(found)
        back = {"providerSpec": {"namespace": made.infra}}
        await made.shoot.merge(MACHINE_CLASSES, "small", back)
        await world.kube.merge(PODS, made.infra, "machine-safe", {"metadata": {"labels": {"app": "machine"}}})


async def test_a_missing_secret_is_named(world: KindWorld) -> None:
    async with machines(world) as made:
        ref = {"name": "absent", "namespace": made.shoot.namespace}
        await made.machine_class("bare", secretRef=ref)
        await made.machine("bare", of="bare")
        await made.until_described("bare", f"Secret {made.shoot.namespace}/absent does not exist: create it")
        await made.shoot.secret("absent", userData=b"#!/bin/sh\n")
        await made.until("bare", "Running")
        found = await made.shoot.get(MACHINES, "bare")
        assert phase_of(found) == "Running"
