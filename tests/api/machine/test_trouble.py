"""Machines that are not created, do not join, or conflict with others: their reports and recovery."""

from __future__ import annotations

import json
import secrets
import subprocess
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from bus import subjects
from bus.messages import OPERATION, PREDECESSOR, UID, VERSION
from bus.transport.connection import connected
from sandbox.programs import binaries
from tests.api.machine.machines import EVENTS, Machines, description, machines, phase_of
from tests.support.kindworld import KindWorld
from tests.support.kubeletrequests import SERVING, request
from tests.support.machines import join
from tests.support.rules import rule
from tests.support.running import eventually
from windowbox.models import machinekeys, refs
from windowbox.models.objects import Object
from windowbox.models.refs import ObjectRef, Resource
from windowbox.settings.bussettings import Access
from workers import replay
from workers.machines import names
from workers.machines.machine import machinestatus
from workers.machines.machine.machineviews import TARGET

pytestmark = [pytest.mark.serves("machine"), pytest.mark.asyncio(loop_scope="module")]


@rule("B6-R4", "B5", "L13", "L41")
async def test_a_wrong_class_is_reported_until_it_is_corrected(made: Machines) -> None:
    await made.machine("early", of="later")
    found = await made.until("early", "CrashLoopBackOff")
    assert "MachineClass later does not exist: create it" in description(found)
    assert found.last_operation["errorCode"] == "InvalidArgument"
    said = "Cloud provider message - machine codes error: code = [InvalidArgument]"
    assert description(found).startswith(said)
    absent = {"name": "absent", "namespace": made.shoot.namespace}
    await made.machine_class("later", providerSpec={"namespace": made.infra}, secretRef=absent)
    await made.until_described("early", "providerSpec.image is missing: give it the image of the machine")
    await made.shoot.merge(refs.MACHINE_CLASSES, "later", {"providerSpec": {"image": "example/node:1"}})
    await made.until_described("early", f"Secret {made.shoot.namespace}/absent does not exist: create it")
    await made.shoot.secret("absent", userData=b"#!/bin/sh\n")
    await made.until("early", "Running")


@rule("L3")
@pytest.mark.simulated(joins=False)
async def test_status_and_events_say_why_a_machine_has_not_joined(made: Machines) -> None:
    made.simulator.held.add("machine-stuck")
    machine = await made.machine("stuck")
    await made.until("stuck", "Pending")
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    unscheduled["message"] = "0/1 nodes"
    await made.simulator.status("machine-stuck", conditions=[unscheduled])
    await made.until_described("stuck", "Pod machine-stuck cannot be scheduled (0/1 nodes): make room")
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    container = {"name": "node", "image": "example/node:1", "imageID": "", "ready": False, "restartCount": 0}
    stuck = container | {"state": {"waiting": waiting}}
    await made.simulator.status("machine-stuck", conditions=[], containerStatuses=[stuck])
    await made.until_described("stuck", "image example/node:1 cannot be pulled")

    async def are_reported() -> bool:
        page = await made.world.kube.page(EVENTS, limit=5000)
        mine = [one for one in page.items if one["involvedObject"].get("uid") == machine.uid]
        return {"Unschedulable", "ImageNotPulled"} <= {one["reason"] for one in mine}

    await eventually(are_reported)
    await made.simulator.running(await made.pod("stuck"))
    await made.simulator.node("machine-stuck", Ready="False")
    await made.until_described("stuck", "node machine-stuck is not ready")
    await made.simulator.node("machine-stuck")
    await made.until("stuck", "Running")


async def test_a_node_that_changes_often_is_reported_seldom(
    made: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made.joined("flaps")
    monkeypatch.setattr(machinestatus, "_REPORTS", 3)
    monkeypatch.setattr(machinestatus, "_WITHIN", 20.0)
    await made.world.quiet()
    began = datetime.now(UTC)
    for number in range(8):
        await made.simulator.node("machine-flaps", Ready=str(number % 2 == 0), Odd=str(number % 2 == 1))
        await made.world.quiet()
    runs = (await made.world.recorded(began, "machine")).runs
    reports = [call.request["patch"] for run in runs for call in run.calls if call.door == "report"]
    assert 1 <= len(reports) <= 3
    # The last change is reported in the end.
    monkeypatch.setattr(machinestatus, "_WITHIN", 1.0)
    await made.simulator.node("machine-flaps", Ready="True", Odd="Unknown")

    def agrees(machine: Object | None) -> bool:
        shown = {one["type"]: one["status"] for one in machine.status["conditions"]} if machine else {}
        return (shown.get("Ready"), shown.get("Odd"), phase_of(machine)) == ("True", "Unknown", "Running")

    await made.shoot.until(refs.MACHINES, "flaps", agrees)


@rule("B8-R6")
@pytest.mark.simulated(joined=False)
async def test_a_machine_waits_until_its_shoot_is_known_or_marked_as_none(made: Machines) -> None:
    await made.machine("lone")
    await made.until_described("lone", "the Shoot's API server is not known yet: annotate Namespace")
    mark = {"metadata": {"annotations": {TARGET: "none"}}}
    await made.world.kube.merge(refs.NAMESPACES, "", made.shoot.namespace, mark)
    found = await made.until("lone", "Available")
    said = {one["type"]: one["address"] for one in found.status["addresses"]}
    assert said == {"Hostname": "machine-lone", "InternalIP": "10.9.0.1"}
    await made.end("lone")


@pytest.mark.long  # the test above waits for its Shoot, too
@rule("B8-R2")
@pytest.mark.simulated(joined=False)
async def test_a_machine_is_created_once_its_shoot_joins(made: Machines) -> None:
    began = datetime.now(UTC)
    await made.machine("early")
    await made.until_described("early", "the Shoot's API server is not known yet")
    await join(made.shoot)
    await made.until("early", "Running")
    await made.world.quiet()
    result = await replay.replayed(await made.world.recorded(began, "machine"))
    assert result.differences == []


@rule("B4-R7", "L4")
@pytest.mark.simulated(joins=False)
async def test_a_pod_deleted_before_joining_is_recreated(made: Machines) -> None:
    await made.machine("again")
    await made.until("again", "Pending")
    first = await made.pod("again")
    await made.remove_pod("again")

    there = made.world.client(made.infra)
    await there.until(refs.PODS, "machine-again", lambda one: bool(one and one.uid != first.uid), 60.0)
    await made.simulator.node("machine-again")
    await made.until("again", "Running")


@rule("B9-R4", "L3", "B12-R1")
async def test_a_machine_with_an_evicted_pod_fails_at_once(made: Machines) -> None:
    await made.running("full")
    pod = {"spec": {"nodeName": "machine-full", "containers": [{"name": "a", "image": "a"}]}}
    await made.shoot.kube.create(refs.PODS, "default", {"metadata": {"name": "on-full"}, **pod})
    message = 'Usage of EmptyDir volume "containerd" exceeds the limit "1Gi".'
    await made.simulator.status("machine-full", phase="Failed", reason="Evicted", message=message)
    await made.simulator.node("machine-full", Ready="Unknown")
    found = await made.until("full", "Failed")
    assert f"Pod machine-full was evicted ({message}): give its pool a larger volume" in description(found)
    # Its kubelet, which would terminate the Pod on it, has ended with it.
    await made.end("full")
    await made.world.kube.remove(refs.PODS, "default", "on-full", grace=0)


@rule("B9-R4", "L3")
async def test_an_unhealthy_machine_fails_once_its_pod_is_deleted(made: Machines) -> None:
    await made.running("slow")
    await made.simulator.node("machine-slow", Ready="Unknown")
    await made.until("slow", "Unknown")
    await made.world.quiet()
    assert phase_of(await made.shoot.get(refs.MACHINES, "slow")) == "Unknown"
    await made.remove_pod("slow")
    found = await made.until("slow", "Failed")
    said = f"Machine slow is lost: Pod {made.infra}/machine-slow is gone from the provider cluster: "
    assert description(found).startswith(said)


async def test_a_class_that_leads_elsewhere_loses_no_machine(made: Machines) -> None:
    await made.running("safe")
    await made.shoot.merge(refs.MACHINE_CLASSES, "small", {"providerSpec": {"namespace": "nowhere"}})
    # Without the label that it is watched by, the bus does not show that it is there.
    unlabelled: dict[str, Any] = {"metadata": {"labels": {"app": None}}}
    await made.world.kube.merge(refs.PODS, made.infra, "machine-safe", unlabelled)
    await made.world.quiet()
    await made.simulator.node("machine-safe", Ready="Unknown")
    await made.until("safe", "Unknown")
    await made.world.quiet()
    found = await made.shoot.get(refs.MACHINES, "safe")
    assert phase_of(found) == "Unknown"
    assert "is gone" not in description(found)
    await made.shoot.merge(refs.MACHINE_CLASSES, "small", {"providerSpec": {"namespace": made.infra}})
    unlabelled["metadata"]["labels"]["app"] = "machine"
    await made.world.kube.merge(refs.PODS, made.infra, "machine-safe", unlabelled)


GROUP = "test:bootstrappers"
_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
_API = {"apiGroup": "rbac.authorization.k8s.io"}
BINDING = {
    "metadata": {"name": GROUP},
    "roleRef": {**_API, "kind": "ClusterRole", "name": "system:node-bootstrapper"},
    "subjects": [{**_API, "kind": "Group", "name": GROUP}],
}
"""The right to request certificates, and none to have them approved."""


def create(world: KindWorld, user: str, *bodies: dict[str, Any]) -> None:
    """As this user, which the API server notes in the request."""
    command = [
        str(binaries.find("kubectl")), f"--kubeconfig={world.plane.kubeconfig}", "create", "-f", "-",
        f"--as={user}", f"--as-group={GROUP}",
    ]  # fmt: skip
    subprocess.run(command, input=yaml.safe_dump_all(bodies), check=True, text=True, timeout=60)


@pytest.mark.long  # unit/machines/test_reasons.py finds the request among others
@rule("L3")
@pytest.mark.simulated(joins=False)
async def test_a_request_that_waits_is_named_in_a_shoot_that_has_nodes(made: Machines) -> None:
    tag = secrets.token_urlsafe(20)
    others = [
        request("elsewhere", name=f"node-csr-Gcc_{tag}"),
        *(request("elsewhere", SERVING, name=f"csr-{n}{secrets.token_hex(3)}") for n in range(20)),
    ]
    mine = f"node-csr-{tag}_dse6"
    await made.world.kube.create(_BINDINGS, "", BINDING)
    try:
        create(made.world, "system:bootstrap:abcdef", *others)
        machine = await made.machine("late")
        await made.until("late", "Pending")
        user = f"system:bootstrap:{names.token_id(machine.uid)}"
        create(made.world, user, request("machine-late", name=mine))
        await made.until_described("late", f"run kubectl certificate approve {mine} there")
    finally:
        await made.world.kube.remove(_BINDINGS, "", GROUP)
        for name in [mine, *(one["metadata"]["name"] for one in others)]:
            await made.world.kube.remove(refs.CERTIFICATE_REQUESTS, "", name)


async def test_a_pod_of_another_control_plane_is_neither_taken_nor_deleted(made: Machines) -> None:
    await made.running("first")
    pod = await made.pod("first")
    async with machines(made.world, joined=False) as other:
        # By mistake, both control planes have their machines in the same namespace.
        mark = {"metadata": {"annotations": {TARGET: "none"}}}
        await made.world.kube.merge(refs.NAMESPACES, "", other.shoot.namespace, mark)
        spec = {**other.class_body("shared")["providerSpec"], "namespace": made.infra}
        await other.machine_class("shared", providerSpec=spec)
        await other.machine("first", of="shared")
        await other.until_described("first", f"belongs to Machine {made.shoot.namespace}/first")
        await other.end("first")
    after = await made.pod("first")
    assert (after.uid, after.annotations, after.deleting) == (pod.uid, pod.annotations, False)


async def test_a_label_does_not_lead_to_the_node_of_another_machine(made: Machines) -> None:
    await made.running("victim")
    await made.running("liar")
    await made.shoot.merge(refs.MACHINES, "liar", {"metadata": {"labels": {"node": "machine-victim"}}})
    await made.end("liar")
    await made.shoot.until_gone(refs.NODES, "machine-liar")
    node = await made.find_node("victim")
    assert node
    assert (node.deleting, node.spec.get("unschedulable")) == (False, None)
    assert phase_of(await made.shoot.get(refs.MACHINES, "victim")) == "Running"


async def test_a_machine_of_a_class_that_never_was_can_be_deleted(made: Machines) -> None:
    await made.machine("typo", of="smal")
    await made.until("typo", "CrashLoopBackOff")
    await made.hold(refs.MACHINES, "typo", machinekeys.FINALIZER)
    await made.end("typo")


async def test_pods_of_other_provider_clusters_are_ignored(made: Machines) -> None:
    """Owners of member clusters may create Pods of any name there."""
    labels = {"app": "machine", "machine": "prey", "machine-provider": "local"}
    annotations = {"machine.windowbox/owner": f"{made.shoot.namespace}/prey"}
    head = {"name": "machine-prey", "namespace": made.infra, "uid": "forged"}
    pod = {"metadata": {**head, "labels": labels, "annotations": annotations}, "status": {"phase": "Failed"}}
    ref = ObjectRef("provider-of-another", refs.PODS.id, made.infra, "machine-prey")
    headers = {OPERATION: "ADDED", UID: "forged", VERSION: "1", PREDECESSOR: "0"}
    async with connected(Access(made.world.nats.url, name="forger")) as bus:
        await bus.publish(subjects.seen(ref), json.dumps(pod).encode(), headers)
    await made.running("prey")
