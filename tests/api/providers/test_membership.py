"""Other clusters that machines run in: when they are watched, by whose Secret, and what nobody can claim."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from bus.clusters.registry import Member, Registry
from bus.transport.connection import connected
from tests.api.providers.liar import liar
from tests.api.providers.test_errors import infrastructure
from tests.api.providers.test_identities import nobody
from tests.support import loopback
from tests.support.kindworld import CLOUDPROVIDER, Client, KindWorld, inline
from tests.support.rules import rule
from tests.support.running import eventually, running
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes import identities, kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.models.objects import Object
from windowbox.models.refs import INFRASTRUCTURES, NAMESPACES, NETWORK_POLICIES, SECRETS, SecretKey
from windowbox.settings.bussettings import Access

pytestmark = pytest.mark.serves("infrastructure")

RULE = "provider-local-deny-all"


def of(plane: ControlPlane, role: str = "provider") -> bytes:
    return inline(plane.kubeconfigs[role].read_bytes())


@contextlib.asynccontextmanager
async def members(world: KindWorld) -> AsyncIterator[Registry]:
    async with connected(Access(world.nats.url, name="test")) as bus:
        registry = Registry(bus)
        async with running(registry.run()):
            yield registry


async def joined(registry: Registry, cluster: str) -> Member:
    async def there() -> Member | None:
        return registry.members.get(cluster)

    found = await eventually(there)
    assert found
    return found


async def reached_by(registry: Registry, cluster: str, namespace: str) -> None:
    async def there() -> bool:
        member = registry.members.get(cluster)
        return bool(member and member.secret and member.secret.namespace == namespace)

    await eventually(there)


async def left(registry: Registry, cluster: str) -> None:
    async def gone() -> bool:
        return cluster in registry.left

    await eventually(gone)


@contextlib.asynccontextmanager
async def administrator(plane: ControlPlane) -> AsyncIterator[Kube]:
    async with kube.from_file(plane.kubeconfig) as made:
        yield made


async def name_of(plane: ControlPlane) -> str:
    async with kube.from_text(of(plane), "it", loopback.EGRESS) as opened:
        return identities.provider(opened, SecretKey(namespace="any", name="any"))


def there(world: KindWorld, admin: Kube, shoot: Client) -> Client:
    """An administrator's view of where the machines of the Shoot are, in another cluster."""
    other = KindWorld(world.plane, world.nats, admin, world.kinds, world.work)
    return other.client(f"infra-{shoot.namespace}")


async def restored(place: Client) -> None:
    """Delete what was made, and see it come back."""
    before = await place.get(NETWORK_POLICIES, RULE)
    assert before
    await place.delete(NETWORK_POLICIES, RULE)

    def anew(found: Object | None) -> bool:
        return found is not None and found.uid != before.uid

    await place.until(NETWORK_POLICIES, RULE, anew)


async def finish(*shoots: Client) -> None:
    for shoot in shoots:
        await shoot.delete(INFRASTRUCTURES, "local")
    for shoot in shoots:
        await shoot.until_gone(INFRASTRUCTURES, "local")


@rule("K-4")
async def test_the_cluster_that_is_served_does_not_join_once_more(world: KindWorld) -> None:
    shoot = await world.shoot()
    async with members(world) as registry:
        await infrastructure(shoot)
        await shoot.until_ready(INFRASTRUCTURES, "local")
        await world.quiet()
        await registry.complete.wait()
        assert registry.members == {}
        place = world.client(f"infra-{shoot.namespace}")
        await restored(place)
    await finish(shoot)


@rule("K-4")
async def test_another_cluster_is_watched_as_long_as_a_secret_leads_there(
    world: KindWorld, other: ControlPlane
) -> None:
    one = await world.shoot(kubeconfig=of(other))
    two = await world.shoot(kubeconfig=of(other))
    cluster = await name_of(other)
    async with members(world) as registry, administrator(other) as admin:
        await infrastructure(one)
        await one.until_ready(INFRASTRUCTURES, "local")
        assert (await joined(registry, cluster)).origin == "provider"
        assert registry.served() == set()
        await restored(there(world, admin, one))
        await infrastructure(two)
        await two.until_ready(INFRASTRUCTURES, "local")

        await finish(one)
        await there(world, admin, one).until_gone(NAMESPACES, f"infra-{one.namespace}")
        await reached_by(registry, cluster, two.namespace)
        await restored(there(world, admin, two))

        await finish(two)
        await left(registry, cluster)


async def test_another_secret_takes_over_when_one_is_changed_or_gone(
    world: KindWorld, other: ControlPlane
) -> None:
    one = await world.shoot(kubeconfig=of(other))
    two = await world.shoot(kubeconfig=of(other))
    cluster = await name_of(other)
    async with members(world) as registry, administrator(other) as admin:
        for shoot in (one, two):
            await infrastructure(shoot)
            await shoot.until_ready(INFRASTRUCTURES, "local")
        await reached_by(registry, cluster, one.namespace)
        await one.secret(CLOUDPROVIDER, kubeconfig=world.kubeconfig())  # leads elsewhere
        await reached_by(registry, cluster, two.namespace)
        await one.secret(CLOUDPROVIDER, kubeconfig=of(other))
        await world.kube.delete(SECRETS, two.namespace, CLOUDPROVIDER)
        await reached_by(registry, cluster, one.namespace)
        await two.secret(CLOUDPROVIDER, kubeconfig=user_of(other, token="revoked"))
        await restored(there(world, admin, one))

        await two.secret(CLOUDPROVIDER, kubeconfig=of(other))
        await finish(one, two)
        await left(registry, cluster)


async def test_credentials_without_watch_rights_join_no_cluster(
    world: KindWorld, other: ControlPlane
) -> None:
    weak = await world.shoot(kubeconfig=nobody(other))
    strong = await world.shoot(kubeconfig=of(other))
    cluster = await name_of(other)
    async with members(world) as registry:
        await infrastructure(weak)
        await weak.until_failed(INFRASTRUCTURES, "local")
        await infrastructure(strong)
        await strong.until_ready(INFRASTRUCTURES, "local")
        found = await joined(registry, cluster)
        assert found.secret
        assert found.secret.namespace == strong.namespace
        await weak.secret(CLOUDPROVIDER, kubeconfig=of(other))
        await finish(strong, weak)
        await left(registry, cluster)


async def test_a_tenant_claiming_the_runtime_identity_stays_separate(
    world: KindWorld, tmp_path: Path
) -> None:
    """Its server tells the right uid. What it holds must not be read in place of what we hold, nor mixed."""
    uid = (await world.kube.get(NAMESPACES, "", "kube-system")).uid
    async with liar(tmp_path, uid) as tenant, members(world) as registry:
        honest, hostile = await world.shoot(), await world.shoot(kubeconfig=tenant.kubeconfig())
        await infrastructure(honest)
        await honest.until_ready(INFRASTRUCTURES, "local")
        await infrastructure(hostile)

        async def apart() -> list[Member]:
            return list(registry.members.values())

        [found] = await eventually(apart)
        assert found.id.startswith("provider-")
        assert found.secret
        assert found.secret.namespace == hostile.namespace
        assert await world.client("").get(NAMESPACES, f"infra-{hostile.namespace}") is None
        await restored(world.client(f"infra-{honest.namespace}"))
        await finish(honest)
        await _let_go(hostile)


async def test_a_redirected_secret_does_not_speak_for_its_cluster(
    world: KindWorld, other: ControlPlane, tmp_path: Path
) -> None:
    """A tenant lets the cluster of all join, and then has the watchers read from a server of their own."""
    tenant_shoot = await world.shoot(kubeconfig=of(other))
    honest = await world.shoot(kubeconfig=of(other))
    cluster = await name_of(other)
    async with (
        liar(tmp_path, "any") as tenant,
        members(world) as registry,
        administrator(other) as admin,
    ):
        await infrastructure(tenant_shoot)
        await tenant_shoot.until_ready(INFRASTRUCTURES, "local")
        await reached_by(registry, cluster, tenant_shoot.namespace)
        await infrastructure(honest)
        await honest.until_ready(INFRASTRUCTURES, "local")
        await tenant_shoot.secret(CLOUDPROVIDER, kubeconfig=tenant.kubeconfig(other.api.ca.certificate))
        await reached_by(registry, cluster, honest.namespace)
        await restored(there(world, admin, honest))
        await finish(honest)
        await tenant_shoot.secret(CLOUDPROVIDER, kubeconfig=of(other))
        await finish(tenant_shoot)


def user_of(plane: ControlPlane, **credentials: str) -> bytes:
    content = yaml.safe_load(of(plane))
    content["users"][0]["user"] = credentials
    return yaml.safe_dump(content).encode()


async def _let_go(shoot: Client) -> None:
    await shoot.delete(INFRASTRUCTURES, "local")
    await shoot.merge(INFRASTRUCTURES, "local", {"metadata": {"finalizers": None}})
    await shoot.until_gone(INFRASTRUCTURES, "local")
