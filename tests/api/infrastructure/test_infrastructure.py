"""Infrastructures, from the API to what is made of them."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from tests.api.infrastructure import infrastructures
from tests.api.infrastructure.infrastructures import behind, examples, infrastructure, pool, says
from tests.support.kindworld import CLOUDPROVIDER, Client, KindWorld, kind_world
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from tools.bench.audit import WRITES
from windowbox.errors import WindowboxError
from windowbox.models.extensions import OPERATION, TIMESTAMP
from windowbox.models.objects import Object
from windowbox.models.refs import CLUSTERS, INFRASTRUCTURES, IP_POOLS, NAMESPACES, NETWORK_POLICIES, Resource

pytestmark = [pytest.mark.serves("infrastructure"), pytest.mark.asyncio(loop_scope="module")]

KINDS: dict[str, Resource] = {one.kind: one for one in (NAMESPACES, IP_POOLS, NETWORK_POLICIES)}


@rule("A.1", "A.3", "I-1", "U-4", "S-3", "K-1", "K-3", "LB-10-routes")
async def test_the_contract_example_has_its_status_and_effects(world: KindWorld) -> None:
    [cluster] = examples("A.1")
    asked, answer, *effects = examples("A.3")
    shoot = world.client(asked["metadata"]["namespace"])
    labels = {"gardener.cloud/role": "shoot"}
    with contextlib.suppress(WindowboxError):  # other examples live there too
        await world.kube.create(NAMESPACES, "", {"metadata": {"name": shoot.namespace, "labels": labels}})
    await world.kube.apply(CLUSTERS, "", shoot.namespace, cluster, owner="gardenlet")
    await shoot.secret(CLOUDPROVIDER, kubeconfig=world.kubeconfig())
    await world.kube.create(INFRASTRUCTURES, shoot.namespace, asked)

    found = await shoot.until(INFRASTRUCTURES, "local", says("Succeeded", ""))
    assert found
    assert _untimed(found.status) == _untimed(answer["status"])
    assert found.last_operation["lastUpdateTime"] >= asked["metadata"]["annotations"][TIMESTAMP][:19]
    for field in ("annotations", "finalizers", "generation"):
        assert found.metadata[field] == answer["metadata"][field]
    there = behind(shoot)
    home = await there.get(NAMESPACES, there.namespace)
    assert home
    for effect in effects:
        await _check(there, effect, home)
    assert set(await infrastructures.made(shoot)) == {
        *((KINDS[effect["kind"]], effect["metadata"]["name"]) for effect in effects),
        (NETWORK_POLICIES, "allow-load-balancers"),
    }
    await shoot.delete(INFRASTRUCTURES, "local")
    await shoot.until_gone(INFRASTRUCTURES, "local")
    await infrastructures.until_nothing_is_left(shoot)


async def _check(there: Client, effect: dict[str, Any], home: Object) -> None:
    """What was made is what the example has, but for the uid of the namespace."""
    found = await there.get(KINDS[effect["kind"]], effect["metadata"]["name"])
    assert found
    for owner in effect["metadata"].get("ownerReferences", []):
        owner["uid"] = home.uid
    assert found.metadata.get("ownerReferences") == effect["metadata"].get("ownerReferences")
    named = {"kubernetes.io/metadata.name": found.name} if effect["kind"] == "Namespace" else {}
    assert dict(found.labels) == effect["metadata"].get("labels", {}) | named
    if "spec" in effect:
        assert found.spec == effect["spec"]


def _untimed(status: Any) -> Any:
    return status | {"lastOperation": {**status["lastOperation"], "lastUpdateTime": None}}


@rule("I-2", "B.8")
async def test_a_deletion_does_not_wait_for_the_namespace_but_its_successor_does(world: KindWorld) -> None:
    shoot = await world.shoot()
    there = await infrastructures.ready(shoot)
    # Something in the namespace holds it, as machines do.
    held = {"metadata": {"name": "machine", "finalizers": ["example.com/machine"]}, "data": {}}
    config_maps = Resource("", "v1", "configmaps", "ConfigMap")
    await world.kube.create(config_maps, there.namespace, held)
    audit = world.audit()
    await shoot.delete(INFRASTRUCTURES, "local")
    await shoot.until_gone(INFRASTRUCTURES, "local")
    await world.quiet()
    former = await there.get(NAMESPACES, there.namespace)
    assert former
    assert former.deleting
    assert audit.requests()["delete namespaces"] == 1
    await infrastructure(shoot)
    words = f"waiting for the former Namespace {there.namespace} to be gone"
    await shoot.until(INFRASTRUCTURES, "local", says("Processing", words))
    await there.merge(config_maps, "machine", {"metadata": {"finalizers": None}})
    await shoot.until_ready(INFRASTRUCTURES, "local")
    now = await there.get(NAMESPACES, there.namespace)
    assert now
    assert now.uid != former.uid
    assert len(await infrastructures.made(shoot)) == 5
    await shoot.delete(INFRASTRUCTURES, "local")
    await shoot.until_gone(INFRASTRUCTURES, "local")
    await infrastructures.until_nothing_is_left(shoot)


@pytest.mark.long  # the test above waits for it, too
@rule("B.8")
async def test_a_shoot_of_the_same_name_waits_for_the_former_namespace(world: KindWorld) -> None:
    shoot = await world.shoot()
    there = behind(shoot)
    held = {"name": there.namespace, "finalizers": ["example.com/former"]}
    await world.kube.create(NAMESPACES, "", {"metadata": held})
    await there.delete(NAMESPACES, there.namespace)
    await infrastructure(shoot)
    words = f"waiting for the former Namespace {there.namespace} to be gone"
    await shoot.until(INFRASTRUCTURES, "local", says("Processing", words))
    assert [kind for kind, _ in await infrastructures.made(shoot)] == [NAMESPACES]
    former = await there.get(NAMESPACES, there.namespace)
    await there.merge(NAMESPACES, there.namespace, {"metadata": {"finalizers": None}})
    await shoot.until_ready(INFRASTRUCTURES, "local")
    now = await there.get(NAMESPACES, there.namespace)
    owned = await there.get(IP_POOLS, pool(shoot))
    assert former
    assert now
    assert owned
    assert now.uid != former.uid
    assert [owner["uid"] for owner in owned.metadata["ownerReferences"]] == [now.uid]


V6 = {"nodes": "fd00:10:1:100::/56", "pods": "fd00:10:3::/48", "services": "fd00:10:4::/112"}


@rule("I-1")
async def test_a_shoot_of_ipv6_alone(world: KindWorld) -> None:
    shoot = await world.shoot(spec={"networking": {"ipFamilies": ["IPv6"], **V6}})
    there = await infrastructures.ready(shoot)
    found = await there.get(IP_POOLS, pool(shoot, "ipv6"))
    assert found
    assert (found.spec["cidr"], found.spec["ipipMode"]) == ("fd00:10:1:100::/56", "Never")
    assert await there.get(IP_POOLS, pool(shoot)) is None
    reported = await shoot.get(INFRASTRUCTURES, "local")
    assert reported
    assert reported.status["networking"] == {name: [cidr] for name, cidr in V6.items()}
    assert reported.status["egressCIDRs"] == ["fd00:10:1:100::/56"]


@rule("B.7")
async def test_each_family_of_a_dual_stack_shoot_has_its_own_pool(world: KindWorld) -> None:
    shoot = await world.shoot(
        spec={
            "networking": {
                "ipFamilies": ["IPv4", "IPv6"],
                "nodes": "10.0.0.0/16",
                "pods": "10.3.0.0/16",
                "services": "10.4.0.0/16",
            }
        },
        status={"networking": {"nodes": ["10.0.0.0/16", V6["nodes"]], "pods": ["10.3.0.0/16", V6["pods"]]}},
    )
    there = await infrastructures.ready(shoot)
    pools = {family: await there.get(IP_POOLS, pool(shoot, family)) for family in ("ipv4", "ipv6")}
    assert {family: found.spec["cidr"] for family, found in pools.items() if found} == {
        "ipv4": "10.0.0.0/16",
        "ipv6": "fd00:10:1:100::/56",
    }
    reported = await shoot.get(INFRASTRUCTURES, "local")
    assert reported
    assert reported.status["networking"] == {
        "nodes": ["10.0.0.0/16", "fd00:10:1:100::/56"],
        "pods": ["10.3.0.0/16", "fd00:10:3::/48"],
        "services": ["10.4.0.0/16"],
    }


@rule("I-1")
async def test_control_planes_of_self_hosted_shoots_are_reached_by_load_balancers(world: KindWorld) -> None:
    workers = [{"name": "control-plane", "controlPlane": {}}]
    shoot = await world.shoot(spec={"provider": {"type": "local", "workers": workers}})
    there = await infrastructures.ready(shoot)
    found = await there.get(NETWORK_POLICIES, infrastructures.ALLOW)
    assert found
    assert found.spec["ingress"][3] == {
        "from": [{"ipBlock": {"cidr": "172.18.0.224/27"}}, {"ipBlock": {"cidr": "fd00:10::e0/123"}}],
        "ports": [{"protocol": "TCP", "port": 443}],
    }


@pytest.mark.long  # lifecycle/test_contract_of_kinds.py counts those of one
async def test_reconciling_five_again_costs_two_writes_each(plane: ControlPlane, nats: NatsServer) -> None:
    async with kind_world(plane, nats, "infrastructure") as world:
        shoots = [await world.shoot() for _ in range(5)]
        for shoot in shoots:
            await infrastructure(shoot)
        for shoot in shoots:
            await shoot.until_ready(INFRASTRUCTURES, "local")
        await world.quiet()
        audit = world.audit()
        for shoot in shoots:
            await shoot.ask(INFRASTRUCTURES, "local")
        for shoot in shoots:
            await shoot.until_ready(INFRASTRUCTURES, "local")
        await world.quiet()
        written = {name: count for name, count in audit.requests().items() if name.split()[0] in WRITES}
        assert written == {"patch infrastructures": 5, "patch infrastructures/status": 5}
    async with kind_world(plane, nats, "infrastructure") as world:
        other = await world.shoot()
        await infrastructure(other)
        await other.until_ready(INFRASTRUCTURES, "local")  # so it has begun, and has seen what was there
        await world.quiet()
        written = {name: count for name, count in audit.requests().items() if name.split()[0] in WRITES}
        assert written == {
            "patch infrastructures": 1,
            "patch infrastructures/status": 1,
            "create namespaces": 1,
            "patch ippools": 1,
            "patch networkpolicies": 3,
        }


@rule("N-2", "I-2")
async def test_a_migrated_infrastructure_keeps_foreign_finalizers(world: KindWorld) -> None:
    shoot = await world.shoot()
    await shoot.create(
        INFRASTRUCTURES, "local", infrastructures.spec(shoot), finalizers=["example.com/other"]
    )
    await shoot.until_ready(INFRASTRUCTURES, "local")
    await shoot.ask(INFRASTRUCTURES, "local", "migrate")

    def handed_over(found: Object | None) -> bool:
        migrated = says("Succeeded", "Successfully migrated Infrastructure")(found)
        return migrated and found is not None and OPERATION not in found.annotations

    found = await shoot.until(INFRASTRUCTURES, "local", handed_over)
    assert found
    assert found.finalizers == ("example.com/other",)
    await shoot.merge(INFRASTRUCTURES, "local", {"metadata": {"finalizers": None}})
