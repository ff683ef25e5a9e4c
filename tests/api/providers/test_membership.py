"""Other clusters that machines run in: when they are watched, by whose Secret, and what nobody can claim."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bus.clusters.registry import Member, Registry
from bus.transport.connection import connected
from tests.api.providers.tenants import finish, infrastructure, liar, nobody, refused, served
from tests.support import loopback
from tests.support.kindworld import CLOUDPROVIDER, Client, KindWorld
from tests.support.rules import rule
from tests.support.running import eventually, running
from tests.support.servers import ControlPlane
from tests.support.tenantconfigs import of, with_user
from windowbox.clients.kubernetes import identities, kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.models.objects import Object
from windowbox.models.refs import INFRASTRUCTURES, NAMESPACES, NETWORK_POLICIES, SECRETS
from windowbox.settings.bussettings import Access

pytestmark = [pytest.mark.serves("infrastructure"), pytest.mark.asyncio(loop_scope="module")]

RULE = "provider-local-deny-all"


@pytest_asyncio.fixture(loop_scope="module")
async def registry(world: KindWorld) -> AsyncIterator[Registry]:
    async with connected(Access(world.nats.url, name="test")) as bus:
        made = Registry(bus)
        async with running(made.run()):
            yield made


async def joined(registry: Registry, cluster: str, by: Client | None = None) -> Member:
    """The member, once it is reached by the Secret of this Shoot."""

    async def there() -> Member | None:
        member = registry.members.get(cluster)
        reached = member and member.secret and (not by or member.secret.namespace == by.namespace)
        return member if reached else None

    found = await eventually(there)
    assert found
    return found


async def left(registry: Registry, cluster: str) -> None:
    await eventually(lambda: cluster in registry.left)


async def name_of(plane: ControlPlane) -> str:
    async with kube.from_text(of(plane), "it", loopback.EGRESS) as opened:
        return identities.provider(opened)


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


@rule("K-4")
async def test_the_served_cluster_does_not_join_again(world: KindWorld, registry: Registry) -> None:
    shoot = await world.shoot()
    await served(shoot)
    await world.quiet()
    await registry.complete.wait()
    assert registry.members == {}
    await restored(world.client(f"infra-{shoot.namespace}"))
    await finish(shoot)


@rule("K-4")
async def test_another_cluster_is_watched_as_long_as_a_secret_leads_there(
    world: KindWorld, registry: Registry, other: ControlPlane
) -> None:
    one, two = [await world.shoot(kubeconfig=of(other)) for _ in range(2)]
    cluster = await name_of(other)
    async with kube.from_file(other.kubeconfig) as admin:
        await served(one)
        assert (await joined(registry, cluster)).origin == "provider"
        assert registry.served() == set()
        await restored(there(world, admin, one))
        await served(two)

        await finish(one)
        await there(world, admin, one).until_gone(NAMESPACES, f"infra-{one.namespace}")
        await joined(registry, cluster, by=two)
        await restored(there(world, admin, two))

        await finish(two)
        await left(registry, cluster)


@pytest.mark.long  # the last test redirects a Secret, and another takes over
async def test_another_secret_takes_over_when_one_is_changed_or_gone(
    world: KindWorld, registry: Registry, other: ControlPlane
) -> None:
    one, two = [await world.shoot(kubeconfig=of(other)) for _ in range(2)]
    cluster = await name_of(other)
    async with kube.from_file(other.kubeconfig) as admin:
        await served(one, two)
        await joined(registry, cluster, by=one)
        await one.secret(CLOUDPROVIDER, kubeconfig=world.kubeconfig())  # leads elsewhere
        await joined(registry, cluster, by=two)
        await one.secret(CLOUDPROVIDER, kubeconfig=of(other))
        await world.kube.delete(SECRETS, two.namespace, CLOUDPROVIDER)
        await joined(registry, cluster, by=one)
        await two.secret(CLOUDPROVIDER, kubeconfig=with_user(of(other), token="revoked"))
        await restored(there(world, admin, one))

        await two.secret(CLOUDPROVIDER, kubeconfig=of(other))
        await finish(one, two)
        await left(registry, cluster)


async def test_credentials_without_watch_rights_join_no_cluster(
    world: KindWorld, registry: Registry, other: ControlPlane
) -> None:
    weak, strong = await world.shoot(kubeconfig=nobody(other)), await world.shoot(kubeconfig=of(other))
    cluster = await name_of(other)
    await refused(weak)
    await served(strong)
    found = await joined(registry, cluster)
    assert found.secret
    assert found.secret.namespace == strong.namespace
    await weak.secret(CLOUDPROVIDER, kubeconfig=of(other))
    await finish(strong, weak)
    await left(registry, cluster)


async def test_a_tenant_claiming_the_runtime_identity_stays_separate(
    world: KindWorld, registry: Registry, tmp_path: Path
) -> None:
    """Its server has the right uid. Its objects must not be read in place of ours, nor mixed with them."""
    uid = (await world.kube.get(NAMESPACES, "", "kube-system")).uid
    async with liar(tmp_path, uid) as tenant:
        honest, hostile = await world.shoot(), await world.shoot(kubeconfig=tenant.kubeconfig())
        await served(honest)
        await infrastructure(hostile)

        await eventually(lambda: bool(registry.members))
        [found] = registry.members.values()
        assert found.id.startswith("provider-")
        assert found.secret
        assert found.secret.namespace == hostile.namespace
        assert await world.client("").get(NAMESPACES, f"infra-{hostile.namespace}") is None
        await restored(world.client(f"infra-{honest.namespace}"))
        await finish(honest)
        await hostile.delete(INFRASTRUCTURES, "local")
        await hostile.merge(INFRASTRUCTURES, "local", {"metadata": {"finalizers": None}})
        await hostile.until_gone(INFRASTRUCTURES, "local")


async def test_a_redirected_secret_does_not_speak_for_its_cluster(
    world: KindWorld, registry: Registry, other: ControlPlane, tmp_path: Path
) -> None:
    """A tenant lets the cluster of all join, and then has the watchers read from a server of their own."""
    hostile, honest = [await world.shoot(kubeconfig=of(other)) for _ in range(2)]
    cluster = await name_of(other)
    async with liar(tmp_path, "any") as tenant, kube.from_file(other.kubeconfig) as admin:
        await served(hostile)
        await joined(registry, cluster, by=hostile)
        await served(honest)
        await hostile.secret(CLOUDPROVIDER, kubeconfig=tenant.kubeconfig(other.api.ca.certificate))
        await joined(registry, cluster, by=honest)
        await restored(there(world, admin, honest))
        await finish(honest)
        await hostile.secret(CLOUDPROVIDER, kubeconfig=of(other))
        await finish(hostile)
