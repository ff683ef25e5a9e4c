"""A Machine, from the API to the node that it becomes, and back."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.api.machine.machines import Machines, phase_of
from tests.support import traces
from tests.support.rules import rule
from tools.bench.audit import without_events, writes
from windowbox.models.machinekeys import LAST_PRESERVE
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_CLASSES, MACHINES, NODES, PODS, SECRETS, SERVICES
from workers.machines import names

pytestmark = [pytest.mark.serves("machine"), pytest.mark.asyncio(loop_scope="module")]


@rule("B4-R1", "B4-R2", "B4-R3")
async def test_a_machine_gets_a_pod_a_secret_and_a_service(made: Machines) -> None:
    machine = await made.running("one")
    kube, infra = made.world.kube, made.infra
    pod = await made.pod("one")
    assert "ownerReferences" not in pod.metadata
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "machine-one", "uid": pod.uid}
    owner = {**reference, "controller": True, "blockOwnerDeletion": True}
    service = await kube.get(SERVICES, infra, "machine-one")
    assert service.metadata["ownerReferences"] == [owner]
    secret = await kube.get(SECRETS, infra, "machine-one-userdata")
    assert secret.metadata["ownerReferences"] == [owner]
    user_data = base64.b64decode(secret.raw["data"]["userdata"]).decode()
    assert "name=one\n" in user_data
    assert "BOOTSTRAP" not in user_data
    assert machine.spec["providerID"] == machine.labels["node"] == "machine-one"
    assert machine.finalizers == ("machine.sapcloud.io/machine-controller-manager",)
    assert machine.annotations == {"machinepriority.machine.sapcloud.io": "3"}
    assert machine.last_operation["description"] == "Machine one successfully joined the cluster"
    assert machine.last_operation["state"] == "Successful"
    assert {one["type"] for one in machine.status["conditions"]} >= {"Ready", "DiskPressure"}
    for one in (pod, service, secret):
        managers = {field["manager"] for field in one.metadata["managedFields"] if "subresource" not in field}
        assert managers == {"machine-controller-manager-provider-local"}


@rule("B11-R3", "B3-R3")
async def test_a_deleted_machine_leaves_nothing(made: Machines) -> None:
    await made.running("two")
    await made.end("two")
    clock = asyncio.get_running_loop().time
    # The Pod's event requeued it: the check without an event comes after 30 s.
    assert clock() - await made.simulator.until_gone("machine-two") < 25.0
    assert await made.find_node("two") is None
    assert await made.world.kube.find(PODS, made.infra, "machine-two") is None


@rule("B8-R2", "B8-R3", "B8-R7", "L39", "AP1.7")
@pytest.mark.simulated(joins=False)
async def test_the_bootstrap_token_lasts_until_the_machine_has_joined(made: Machines) -> None:
    machine = await made.machine("joiner")
    await made.until("joiner", "Pending")
    name = names.token(names.token_id(machine.uid))
    token = await made.token(name)
    assert token
    data = {key: base64.b64decode(value).decode() for key, value in token.raw["data"].items()}
    secret = await made.world.kube.get(SECRETS, made.infra, "machine-joiner-userdata")
    user_data = base64.b64decode(secret.raw["data"]["userdata"]).decode()
    assert f"token={data['token-id']}.{data['token-secret']}\n" in user_data
    await made.simulator.node("machine-joiner")
    await made.until("joiner", "Running")
    await made.world.quiet()
    assert await made.token(name) is None


@pytest.mark.simulated(start=0.3, join=0.3)
async def test_a_machine_costs_few_requests(made: Machines) -> None:
    await made.running("warm")
    await made.world.quiet()
    audit = made.world.audit()
    await made.running("cheap", of_set=True)
    await made.world.quiet()
    requests = without_events(audit.requests())
    # Eight, and two reads; a run more where a report meets one that has just been written.
    assert writes(requests) <= 10, requests
    reads = [count for name, count in requests.items() if name.split()[0] in ("get", "list")]
    assert sum(reads) <= 5, requests
    await made.end("cheap")
    await made.world.quiet()
    requests = without_events(audit.requests())
    assert writes(requests) <= 7, requests


@rule("B10-R1", "B10-R2", "B10-R5")
async def test_a_node_gets_labels_and_taints_of_its_machine(made: Machines) -> None:
    taint = {"key": "dedicated", "effect": "NoSchedule"}
    given: dict[str, Any] = {"labels": {"team": "blue"}, "annotations": {"note": "x"}}
    await made.machine("synced", nodeTemplate={"metadata": given, "spec": {"taints": [taint]}})
    node = await made.until_node("machine-synced", lambda one: bool(one and one.labels.get("team")))
    assert node.labels["node.gardener.cloud/machine-name"] == "synced"
    assert node.annotations["note"] == "x"
    assert node.finalizers == ("node.machine.sapcloud.io/machine-controller",)
    assert taint in node.spec["taints"]
    given = {"labels": {"team": None, "stage": "test"}}
    template = {"metadata": given, "spec": {"taints": []}}
    await made.shoot.merge(MACHINES, "synced", {"spec": {"nodeTemplate": template}})
    node = await made.until_node("machine-synced", lambda one: bool(one and one.labels.get("stage")))
    assert "team" not in node.labels
    assert taint not in node.spec.get("taints", [])
    label = {"metadata": {"labels": {"stage": "other"}}}
    await made.world.kube.merge(NODES, "", "machine-synced", label)
    await made.until_node("machine-synced", lambda one: bool(one and one.labels["stage"] == "test"))


@rule("B10-R3")
async def test_a_node_gets_the_virtual_capacity_of_its_class(made: Machines) -> None:
    template = made.class_body("virtual")["nodeTemplate"]
    slots = {"virtualCapacity": {"example.com/slots": "2000m"}}
    await made.machine_class("virtual", nodeTemplate=template | slots)
    await made.running("virtual", of="virtual")
    noted = "node.machine.sapcloud.io/last-applied-virtual-capacity"

    def has(amount: str | None) -> Callable[[Object | None], bool]:
        def holds(node: Object | None) -> bool:
            shown = (node.status.get("capacity") or {}).get("example.com/slots") if node else None
            return shown == amount and node is not None and (noted in node.annotations) == bool(amount)

        return holds

    await made.until_node("machine-virtual", has("2"))
    await made.world.quiet()
    audit = made.world.audit()
    for amount, shown in (("3", "3"), (None, None)):
        patch = {"nodeTemplate": {"virtualCapacity": {"example.com/slots": amount}}}
        await made.shoot.merge(MACHINE_CLASSES, "virtual", patch)
        await made.until_node("machine-virtual", has(shown))
    await made.world.quiet()
    assert sum(count for name, count in audit.requests().items() if name == "patch nodes") <= 4


@rule("B9-R4", "B9-R8")
async def test_an_unhealthy_machine_is_unknown_then_failed_and_may_recover(made: Machines) -> None:
    await made.running("sick", healthTimeout="2s")
    await made.simulator.node("machine-sick", Ready="False")
    unknown = await made.until("sick", "Unknown")
    assert "Ready is False" in unknown.last_operation["description"]
    failed = await made.until("sick", "Failed")
    assert failed.last_operation["state"] == "Failed"
    assert "health checks failing" in failed.last_operation["description"]
    await made.simulator.node("machine-sick")
    well = await made.until("sick", "Running")
    assert "re-joined" in well.last_operation["description"]


@rule("B9-R6")
async def test_machines_of_a_deployment_fail_one_at_a_time(made: Machines) -> None:
    for name in ("a", "b"):
        await made.running(name, healthTimeout="1s")
    for name in ("a", "b"):
        await made.simulator.node(f"machine-{name}", Ready="Unknown")
    for name in ("a", "b"):
        await made.shoot.until(MACHINES, name, lambda one: phase_of(one) in ("Unknown", "Failed"))
    await made.until("a", "Failed")
    await made.world.quiet()
    assert phase_of(await made.shoot.get(MACHINES, "b")) == "Unknown"
    await made.delete("a")
    await made.until("b", "Failed")


@rule("B10-R6")
async def test_a_deleted_node_deletes_its_machine(made: Machines) -> None:
    await made.joined("left")
    await made.world.kube.remove(NODES, "", "machine-left")
    await made.shoot.until_gone(MACHINES, "left")


@rule("C12-R2", "C12-R4", "C12-R8")
async def test_a_failed_machine_is_preserved_on_request(made: Machines) -> None:
    async def ask(value: str) -> None:
        annotations = {"node.machine.sapcloud.io/preserve": value}
        await made.shoot.merge(NODES, "machine-kept", {"metadata": {"annotations": annotations}})

    await made.running("kept", healthTimeout="1s")
    await ask("when-failed")
    await made.shoot.until(MACHINES, "kept", lambda one: bool(one and one.annotations.get(LAST_PRESERVE)))
    await made.simulator.node("machine-kept", Ready="Unknown")
    failed = await made.shoot.until(MACHINES, "kept", lambda one: bool(expiry(one)))
    assert phase_of(failed) == "Failed"

    def held(node: Object | None) -> bool:
        said = {one["type"]: one["reason"] for one in (node.status["conditions"] if node else ())}
        return said.get("Preserved") == "Preserved by user."

    node = await made.until_node("machine-kept", held)
    assert node.annotations["cluster-autoscaler.kubernetes.io/scale-down-disabled"] == "true"
    taint = {"key": "node.machine.sapcloud.io/preserved", "effect": "NoSchedule"}
    assert taint in node.spec["taints"]
    await ask("false")
    await made.shoot.until(MACHINES, "kept", lambda one: not expiry(one))
    node = await made.until_node("machine-kept", lambda one: taint not in one.spec.get("taints", []))
    assert "cluster-autoscaler.kubernetes.io/scale-down-disabled" not in node.annotations


def expiry(machine: Object | None) -> str:
    return str((machine.status["currentStatus"].get("preserveExpiryTime") or "") if machine else "")


@pytest.mark.long  # the time-out counts in the tests above, waits are shown in commands/test_trace.py
async def test_an_unknown_machine_waits_for_its_health_timeout(made: Machines, tmp_path: Path) -> None:
    await made.running("sick", healthTimeout="10m")
    await made.simulator.node("machine-sick", Ready="False")
    await made.until("sick", "Unknown")
    [item] = await traces.waiting(made.shoot, "machine", "sick", tmp_path)
    assert item["title"].startswith("machine: again at ")
    assert item["title"].endswith((", in 10 min (due)", ", in 9 min (due)"))
    because = "because: the machine is Failed then, unless its node is healthy before"
    assert item["details"] == [because]
