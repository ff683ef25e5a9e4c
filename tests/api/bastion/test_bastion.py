"""Bastions, from the API to what is made of them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from typing import Any

import pytest
import pytest_asyncio

from tests.api.bastion import bastions
from tests.api.bastion.bastions import ADDRESS, IMAGE, SCRIPT, Yard, written, yard
from tests.api.infrastructure.infrastructures import examples, says
from tests.support.kindworld import CLOUDPROVIDER, KindWorld
from tests.support.rules import rule
from windowbox.errors import WindowboxError
from windowbox.models.extensions import FORCE_DELETION, TIMESTAMP
from windowbox.models.objects import Object
from windowbox.models.refs import (
    BASTIONS,
    CLUSTERS,
    NAMESPACES,
    NETWORK_POLICIES,
    PODS,
    SECRETS,
    SERVICES,
    Resource,
)

pytestmark = [pytest.mark.serves("bastion"), pytest.mark.asyncio(loop_scope="module")]

NAME = "bastion-cli"
HELD = {"metadata": {"finalizers": ["example.com/held"]}}
FREE = {"metadata": {"finalizers": None}}
NEWER = "registry.local/node:v2.0.0"
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")


@rule("BA-2", "BA-3", "BA-4", "BA-6", "B.5", "K-3")
async def test_a_bastion_comes_and_goes(world: KindWorld) -> None:
    made = await yard(world)
    await made.create()
    found = await made.ready()
    assert found.status["ingress"] == ADDRESS
    assert found.finalizers == ("extensions.gardener.cloud/bastion",)
    secret, pod, service, policy = [await made.there.get(one, NAME) for one in bastions.PARTS]
    assert secret
    assert base64.b64decode(secret.raw["data"]["userdata"]) == SCRIPT
    assert pod
    assert pod.spec["containers"][0]["image"] == IMAGE
    assert service
    assert service.spec["loadBalancerSourceRanges"] == ["203.0.113.7/32"]
    assert policy
    await made.gone()
    assert [await made.there.get(one, NAME) for one in bastions.PARTS] == [None] * 4


@rule("A.7", "A.1", "U-1", "U-4")
async def test_the_example_of_the_contract_has_the_status_of_the_contract(world: KindWorld) -> None:
    [cluster] = examples("A.1")
    asked, answer = examples("A.7")
    shoot = world.client(asked["metadata"]["namespace"])
    made = Yard(shoot, world.client(f"infra-{shoot.namespace}"))
    name = f"bastion-{asked['metadata']['name']}"
    with contextlib.suppress(WindowboxError):  # other examples live there too
        await world.kube.create(NAMESPACES, "", {"metadata": {"name": shoot.namespace}})
    await world.kube.apply(CLUSTERS, "", shoot.namespace, cluster, owner="gardenlet")
    await shoot.secret(CLOUDPROVIDER, kubeconfig=world.kubeconfig())
    await bastions.appear(made)
    await world.kube.create(BASTIONS, shoot.namespace, asked)
    await made.balanced(name, answer["status"]["ingress"])
    await made.started(name)

    found = await shoot.until(BASTIONS, asked["metadata"]["name"], says("Succeeded", ""))
    assert found
    assert _untimed(found.status) == _untimed(answer["status"])
    assert found.last_operation["lastUpdateTime"] >= asked["metadata"]["annotations"][TIMESTAMP][:19]
    for field in ("annotations", "finalizers", "generation"):
        assert found.metadata[field] == answer["metadata"][field]
    pod = await made.there.get(PODS, name)
    assert pod
    [version] = cluster["spec"]["cloudProfile"]["spec"]["providerConfig"]["machineImages"][0]["versions"]
    assert pod.spec["containers"][0]["image"] == version["image"]
    await made.gone(asked["metadata"]["name"])
    await made.there.delete(NAMESPACES, made.there.namespace)
    await made.there.until_gone(NAMESPACES, made.there.namespace)


def _untimed(status: Any) -> Any:
    return status | {"lastOperation": {**status["lastOperation"], "lastUpdateTime": None}}


@rule("BA-3", "B-3", "B.21", "U-4")
async def test_waiting_is_reported_without_an_error(world: KindWorld) -> None:
    made = await yard(world)
    await made.create()
    for words, play in (
        ("waiting for Bastion LoadBalancer to get ready", made.balanced),
        ("waiting for Bastion Pod to get ready", made.started),
    ):
        found = await made.shoot.until(
            BASTIONS, "cli", says("Processing", f"Reconciling the Bastion: {words}")
        )
        assert found
        assert (found.last_operation["type"], found.last_operation["progress"]) == ("Create", 50)
        assert not {"lastError", "ingress"} & set(found.status)
        await play()
    found = await made.shoot.until_ready(BASTIONS, "cli")
    assert found.last_operation["type"] == "Create"


@rule("BA-2")
async def test_a_bastion_waits_for_the_namespace_of_the_infrastructure(world: KindWorld) -> None:
    made = await yard(world, home=False)
    await made.create()
    words = f"waiting for namespace {made.there.namespace}, which the Infrastructure makes"
    await made.shoot.until(BASTIONS, "cli", says("Processing", words))
    await bastions.appear(made)
    await made.ready()


@rule("BA-5", "B.5", "T-4")
async def test_other_source_ranges_change_only_the_service(world: KindWorld) -> None:
    made = await yard(world)
    await made.create()
    await made.ready()
    await world.quiet()
    before = [await made.there.get(one, NAME) for one in bastions.PARTS]
    spec = bastions.spec("203.0.113.0/24", "2001:db8::/64")
    await made.shoot.merge(BASTIONS, "cli", {"spec": spec})
    await world.quiet()
    audit = world.audit()
    await made.shoot.ask(BASTIONS, "cli")
    await made.shoot.until_ready(BASTIONS, "cli")
    await world.quiet()
    assert written(audit.requests()) == {
        "patch services": 1, "patch bastions": 1, "patch bastions/status": 1,
    }  # fmt: skip
    after = [await made.there.get(one, NAME) for one in bastions.PARTS]
    assert [one and one.uid for one in before] == [one and one.uid for one in after]
    service = await made.there.get(SERVICES, NAME)
    assert service
    assert service.spec["loadBalancerSourceRanges"] == ["203.0.113.0/24", "2001:db8::/64"]


@rule("BA-3")
async def test_another_address_is_reported(world: KindWorld) -> None:
    made = await yard(world)
    await made.create()
    await made.ready()
    with_ports = {"hostname": "lb.local", "ports": [{"port": 22, "protocol": "TCP"}]}
    await made.balanced(ingress=with_ports)
    await made.shoot.until(
        BASTIONS, "cli", lambda found: bool(found and found.status["ingress"] == {"hostname": "lb.local"})
    )


@pytest.mark.long  # lifecycle/test_quick_deletions.py has many in one Shoot
async def test_bastions_of_one_shoot_do_not_disturb_each_other(world: KindWorld) -> None:
    made = await yard(world)
    for name in ("one", "two"):
        await made.create(name)
        await made.ready(name)
    await made.gone("one")
    for resource in bastions.PARTS:
        assert await made.there.get(resource, "bastion-one") is None
        assert await made.there.get(resource, "bastion-two")


@rule("B-1", "B.17")
async def test_a_pod_refused_by_a_quota_is_retried_soon(world: KindWorld) -> None:
    made = await yard(world)
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    await world.kube.create(QUOTAS, made.there.namespace, quota)
    await made.create()
    found = await made.shoot.until_failed(BASTIONS, "cli")
    assert found.status["lastError"]["codes"] == ["ERR_INFRA_QUOTA_EXCEEDED"]
    await made.there.delete(QUOTAS, "none")
    async with asyncio.timeout(60):  # what a person has to mend is left alone for longer
        await made.there.until(PODS, NAME, lambda found: found is not None)
    await made.ready()


@pytest_asyncio.fixture(loop_scope="module")
async def standing(world: KindWorld) -> Yard:
    return await bastions.standing(world)


def _another(former: Object | None, found: Object | None) -> bool:
    return bool(former and found and found.uid != former.uid and not found.deleting)


async def test_a_pod_that_has_ended_is_replaced(standing: Yard) -> None:
    former = await standing.there.get(PODS, NAME)
    ended = {"phase": "Failed", "conditions": [{"type": "Ready", "status": "False"}]}
    await standing.there.merge(PODS, NAME, {"status": ended}, part="status")
    await standing.there.until(PODS, NAME, lambda found: _another(former, found))
    await standing.started()
    await standing.shoot.ask(BASTIONS, "cli")
    await standing.shoot.until_ready(BASTIONS, "cli")


async def test_a_pod_of_another_program_is_adopted(world: KindWorld) -> None:
    """Nobody may change the spec of a Pod, and this one has no readiness probe."""
    made = await yard(world)
    labels = {"app": "bastion", "bastion": "cli"}
    pod = {
        "metadata": {"name": NAME, "labels": labels},
        "spec": {"containers": [{"name": "machine", "image": IMAGE}]},
    }
    former = await made.there.kube.create(PODS, made.there.namespace, pod)
    await made.create()
    await made.ready()
    found = await made.there.get(PODS, NAME)
    assert found
    assert found.uid == former.uid
    assert found.annotations.keys() >= {"windowbox/made-for"}


@pytest.mark.long  # lifecycle/test_contract_of_kinds.py edits it
async def test_an_edited_service_leads_to_the_bastion_again(standing: Yard) -> None:
    await standing.there.merge(SERVICES, NAME, {"spec": {"selector": {"more": "x"}}})
    ours = {"app": "bastion", "bastion": "cli"}
    await standing.there.until(SERVICES, NAME, lambda found: bool(found and found.spec["selector"] == ours))


@rule("BA-1")
async def test_a_newer_image_is_for_new_bastions(standing: Yard) -> None:
    newer = bastions.cloud_profile(("1.0.0", IMAGE), ("2.0.0", NEWER))
    former = await standing.there.get(PODS, NAME)
    await standing.shoot.cluster(cloudProfile=newer)
    await standing.shoot.ask(BASTIONS, "cli", spec=bastions.spec("203.0.113.9/32"))
    await standing.shoot.until_ready(BASTIONS, "cli")
    pod = await standing.there.get(PODS, NAME)
    assert former
    assert pod
    assert (pod.uid, pod.spec["containers"][0]["image"]) == (former.uid, IMAGE)
    await standing.create("new")
    pod = await standing.there.until(PODS, "bastion-new", lambda found: found is not None)
    assert pod
    assert pod.spec["containers"][0]["image"] == NEWER


async def test_reports_of_others_cause_no_write(standing: Yard, world: KindWorld) -> None:
    audit = world.audit()
    condition = [{"type": "Ready", "status": "True"}, {"type": "Example", "status": "True"}]
    await standing.there.merge(PODS, NAME, {"status": {"conditions": condition}}, part="status")
    await standing.there.merge(SERVICES, NAME, {"metadata": {"annotations": {"example.com/note": "b"}}})
    await standing.there.until(
        SERVICES, NAME, lambda found: bool(found and found.annotations.get("example.com/note"))
    )
    await world.quiet()
    assert written(audit.requests()) == {}


@pytest.mark.long  # the first and the last test wait for both, too
@rule("BA-4")
async def test_a_deletion_waits_for_pod_and_service(world: KindWorld) -> None:
    made = await bastions.standing(world)
    for resource in (PODS, SERVICES):
        await made.there.merge(resource, NAME, HELD)
    await made.shoot.delete(BASTIONS, "cli")
    both = "Deleting the Bastion: waiting for Pod and Service bastion-cli to be gone"
    found = await made.shoot.until(BASTIONS, "cli", says("Processing", both))
    assert found
    assert "lastError" not in found.status
    for resource in (SECRETS, NETWORK_POLICIES):
        await made.there.until_gone(resource, NAME)
    await made.there.merge(SERVICES, NAME, FREE)
    await made.shoot.until(BASTIONS, "cli", says("Processing", "waiting for Pod bastion-cli to be gone"))
    await made.there.merge(PODS, NAME, FREE)
    await made.shoot.until_gone(BASTIONS, "cli")


@rule("BA-4", "U-1")
async def test_a_deleted_bastion_reports_that_it_was_reconciled(world: KindWorld) -> None:
    made = await bastions.standing(world, finalizers=["example.com/other"])
    await made.shoot.delete(BASTIONS, "cli")

    def let_go(found: Object | None) -> bool:  # the finalizer and the status are written by two processes
        last = found.last_operation if found else {}
        return (last.get("type"), last.get("state")) == ("Delete", "Succeeded")

    found = await made.shoot.until(BASTIONS, "cli", let_go)
    assert found
    assert found.last_operation["description"] == "Successfully reconciled Bastion"
    await made.shoot.merge(BASTIONS, "cli", FREE)


@rule("BA-4")
async def test_a_bastion_without_objects_is_deleted(world: KindWorld) -> None:
    made = await yard(world, home=False)
    await made.create()
    await made.shoot.until(BASTIONS, "cli", says("Processing", "waiting for namespace"))
    await made.gone()


@rule("D-2", "BA-4", "B.6")
async def test_a_forced_deletion_does_not_wait(world: KindWorld) -> None:
    made = await bastions.standing(world)
    await made.there.merge(PODS, NAME, HELD)
    await made.shoot.merge(BASTIONS, "cli", {"metadata": {"annotations": {FORCE_DELETION: "true"}}})
    await made.gone()
    pod = await made.there.get(PODS, NAME)
    assert pod
    assert pod.deleting
    assert [await made.there.get(one, NAME) for one in bastions.PARTS if one != PODS] == [None] * 3
    await made.there.merge(PODS, NAME, FREE)


@pytest.mark.parametrize(
    "confirmed",
    [
        pytest.param("bastion", id="D-2-not-exactly-true", marks=pytest.mark.long),
        pytest.param("shoot", id="D-2-the-annotation-of-the-shoot"),
    ],
)
async def test_other_confirmations_do_not_count(world: KindWorld, confirmed: str) -> None:
    made = await bastions.standing(world)
    annotations = {FORCE_DELETION: "True"}
    if confirmed == "bastion":
        await made.shoot.merge(BASTIONS, "cli", {"metadata": {"annotations": annotations}})
    else:
        profile = bastions.cloud_profile()
        await made.shoot.cluster(cloudProfile=profile, metadata={"annotations": annotations})
    await made.there.merge(PODS, NAME, HELD)
    await world.quiet()
    await made.shoot.delete(BASTIONS, "cli")
    await made.shoot.until(BASTIONS, "cli", says("Processing", "waiting for Pod"))
    await made.there.merge(PODS, NAME, FREE)
    await made.shoot.until_gone(BASTIONS, "cli")
