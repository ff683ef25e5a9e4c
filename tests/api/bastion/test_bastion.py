"""Bastions, from the API to what is made of them."""

from __future__ import annotations

import base64
import contextlib
from typing import Any

import pytest

from tests.api.bastion import bastions
from tests.api.bastion.bastions import ADDRESS, IMAGE, SCRIPT, Yard, written, yard
from tests.api.infrastructure.infrastructures import examples, says
from tests.support.kindworld import CLOUDPROVIDER, KindWorld
from tests.support.rules import rule
from windowbox.errors import WindowboxError
from windowbox.models.extensions import OPERATION, TIMESTAMP
from windowbox.models.refs import BASTIONS, CLUSTERS, NAMESPACES, PODS, SERVICES

pytestmark = pytest.mark.serves("bastion")

NAME = "bastion-cli"


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
async def test_what_is_waited_for_is_told_without_an_error(world: KindWorld) -> None:
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
async def test_a_bastion_waits_for_the_namespace_that_the_infrastructure_makes(world: KindWorld) -> None:
    made = await yard(world, home=False)
    await made.create()
    words = f"waiting for namespace {made.there.namespace}, which the Infrastructure makes"
    await made.shoot.until(BASTIONS, "cli", says("Processing", words))
    await bastions.appear(made)
    await made.ready()


@rule("BA-2", "BA-3")
async def test_done_again_nothing_is_written_but_the_answer(world: KindWorld) -> None:
    made = await yard(world)
    await made.create()
    await made.ready()
    await world.quiet()
    audit = world.audit()
    await made.shoot.ask(BASTIONS, "cli")
    await made.shoot.until_ready(BASTIONS, "cli")
    await world.quiet()
    assert written(audit.requests()) == {"patch bastions": 1, "patch bastions/status": 1}


@rule("BA-5", "B.5", "T-4")
async def test_who_may_connect_can_be_changed_and_nothing_else_is_touched(world: KindWorld) -> None:
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
async def test_another_address_is_reported_as_soon_as_it_is_there(world: KindWorld) -> None:
    made = await yard(world)
    await made.create()
    await made.ready()
    with_ports = {"hostname": "lb.local", "ports": [{"port": 22, "protocol": "TCP"}]}
    await made.balanced(ingress=with_ports)
    await made.shoot.until(
        BASTIONS, "cli", lambda found: bool(found and found.status["ingress"] == {"hostname": "lb.local"})
    )


@rule("T-8", "O-7")
async def test_bastions_work_while_the_shoot_has_failed_and_are_not_migrated(world: KindWorld) -> None:
    failed = {"lastOperation": {"state": "Failed", "type": "Reconcile"}}
    made = await yard(world)
    await made.shoot.cluster(cloudProfile=bastions.cloud_profile(), status=failed)
    await made.create(operation="migrate")
    await made.balanced()
    await made.started()
    found = await made.shoot.until(BASTIONS, "cli", says("Succeeded", "Successfully reconciled Bastion"))
    assert found
    assert found.annotations[OPERATION] == "migrate"


async def test_bastions_of_one_shoot_do_not_disturb_each_other(world: KindWorld) -> None:
    made = await yard(world)
    for name in ("one", "two"):
        await made.create(name)
        await made.ready(name)
    await made.gone("one")
    for resource in bastions.PARTS:
        assert await made.there.get(resource, "bastion-one") is None
        assert await made.there.get(resource, "bastion-two")
