"""Clients of provider clusters: how many there are, and how long they live."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from bus import streams
from bus.clusters import providers
from bus.clusters.clusters import clusters
from bus.clusters.providers import Providers
from bus.clusters.registry import Registry
from bus.transport.connection import connected
from tests.support import loopback
from tests.support.kindworld import CLOUDPROVIDER, Client, KindWorld
from tests.support.natsserver import NatsServer
from tests.support.proxy import Proxy, proxy
from tests.support.rules import rule
from tests.support.running import eventually, running, soon
from tests.support.servers import ControlPlane
from tests.support.tenantconfigs import of, with_user
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Malformed, PermanentError, Unreachable
from windowbox.models.refs import NAMESPACES, RUNTIME, SecretKey
from windowbox.settings.bussettings import Access
from windowbox.settings.kindsettings import KindSettings
from windowbox.settings.settings import WorkSettings

pytestmark = pytest.mark.serves("infrastructure")


@dataclass
class Room:
    """The service, as a worker has it, and an administrator who makes Secrets."""

    providers: Providers
    world: KindWorld

    async def secret(self, kubeconfig: bytes) -> Client:
        return await self.world.shoot(kubeconfig=kubeconfig)

    @contextlib.asynccontextmanager
    async def opened(self, shoot: Client) -> AsyncIterator[Kube]:
        async with self.providers.opened(RUNTIME, shoot.namespace, CLOUDPROVIDER) as provider:
            yield provider.kube

    async def visit(self, shoot: Client) -> Kube:
        async with self.opened(shoot) as found:
            return found


@pytest_asyncio.fixture
async def room(plane: ControlPlane, nats: NatsServer) -> AsyncIterator[Room]:
    async with connected(Access(nats.url)) as bus:
        await streams.ensure(bus)
        registry = Registry(bus)
        async with (
            kube.from_file(plane.kubeconfig) as admin,
            kube.from_file(plane.kubeconfigs["worker"]) as runtime,
            clusters(runtime, registry, loopback.SETTINGS) as opened,
            running(registry.run()),
        ):
            made = Providers(opened, registry)
            try:
                yield Room(made, KindWorld(plane, nats, admin, KindSettings(), WorkSettings()))
            finally:
                await made.aclose()


@contextlib.asynccontextmanager
async def hanging(plane: ControlPlane) -> AsyncIterator[tuple[Proxy, bytes]]:
    """A proxy before the API server that hangs, and the kubeconfig that leads through it."""
    async with proxy(int(plane.url.rpartition(":")[2])) as between:
        between.hang()
        yield between, of(plane).replace(plane.url.encode(), f"https://127.0.0.1:{between.port}".encode())


def variants(plane: ControlPlane, count: int) -> list[bytes]:
    """Kubeconfigs that say the same in other words."""
    return [of(plane) + f"# {number}\n".encode() for number in range(count)]


async def closed(opened: Kube) -> bool:
    return opened.stale


@rule("K-1")
async def test_secrets_with_the_same_kubeconfig_share_one_client(room: Room, plane: ControlPlane) -> None:
    one, two = await room.secret(of(plane)), await room.secret(of(plane))
    three = await room.secret(variants(plane, 1)[0])
    first, *others = await asyncio.gather(*(room.visit(one) for _ in range(20)))
    assert {id(found) for found in others} == {id(first)}
    assert await room.visit(two) is first
    assert await room.visit(three) is not first


@rule("K-1")
async def test_a_client_in_use_is_not_closed(
    room: Room, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "_IDLE_SECONDS", 0.0)
    shoot = await room.secret(of(plane))
    async with room.opened(shoot) as used:
        await shoot.secret(CLOUDPROVIDER, kubeconfig=variants(plane, 1)[0])
        renewed = await room.visit(shoot)
        assert renewed is not used
        await eventually(lambda: closed(renewed))
        assert (await used.get(NAMESPACES, "", "default")).name == "default"
    await eventually(lambda: closed(used))


@rule("K-1")
async def test_only_a_number_of_unused_clients_is_kept(
    room: Room, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "_MOST_IDLE", 2)
    shoots = [await room.secret(text) for text in variants(plane, 4)]
    first, second, third = [await room.visit(shoot) for shoot in shoots[:3]]
    await eventually(lambda: closed(first))
    assert await room.visit(shoots[1]) is second  # used again: now the third is the longest unused
    await room.visit(shoots[3])
    await eventually(lambda: closed(third))
    assert not second.stale


@rule("K-1")
async def test_a_client_whose_credentials_are_refused_is_reopened(room: Room, plane: ControlPlane) -> None:
    shoot = await room.secret(with_user(of(plane), token="outdated"))
    async with room.opened(shoot) as first:
        with pytest.raises(PermanentError, match="Unauthorized") as refused:
            await first.get(NAMESPACES, "", "default")
        assert refused.value.codes == ("ERR_INFRA_UNAUTHENTICATED",)
    assert await room.visit(shoot) is not first
    with pytest.raises(Unreachable, match="has been given up"):
        await first.get(NAMESPACES, "", "default")


async def test_a_hanging_server_delays_no_other(room: Room, plane: ControlPlane) -> None:
    async with hanging(plane) as (between, other_way):
        stuck, free = await room.secret(other_way), await room.secret(of(plane))
        waiting = asyncio.create_task(room.visit(stuck))

        await eventually(lambda: between.opened > 0)
        found = await soon(room.visit(free))
        assert (await found.get(NAMESPACES, "", "default")).name == "default"
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_waiters_for_a_hanging_server_fail_together(room: Room, plane: ControlPlane) -> None:
    async with hanging(plane) as (between, other_way):
        shoot = await room.secret(other_way)
        visits = [asyncio.create_task(room.visit(shoot)) for _ in range(20)]

        async def all_wait() -> bool:
            return between.opened == 1 and [one.users for one in room.providers._shared.values()] == [20]

        await eventually(all_wait)
        between.cut()
        found = await soon(asyncio.gather(*visits, return_exceptions=True))
        assert {type(one) for one in found} == {Unreachable}
        assert between.opened == 1
        between.resume()
        assert (await (await room.visit(shoot)).get(NAMESPACES, "", "default")).name == "default"


async def test_the_cluster_of_a_secret_is_known_without_a_request(
    room: Room, plane: ControlPlane, other: ControlPlane
) -> None:
    async def where(kubeconfig: bytes, *, watched: bool = False) -> str | None:
        shoot = await room.secret(kubeconfig)
        secret = SecretKey(namespace=shoot.namespace, name=CLOUDPROVIDER)
        return await room.providers.leads_to(secret, watched=watched)

    found = await where(of(other))
    assert found
    assert found.startswith("provider-")
    outdated = with_user(of(other), token="outdated")
    assert await where(of(other), watched=True) == found
    assert await where(outdated) == found
    assert await where(outdated, watched=True) is None
    for useless in (of(plane), b"", b"a: [", b"clusters: []"):
        assert await where(useless) is None


async def test_a_member_is_not_reached_by_a_secret_that_leads_elsewhere_now(
    room: Room, plane: ControlPlane, other: ControlPlane
) -> None:
    shoot = await room.secret(of(other))
    secret = SecretKey(namespace=shoot.namespace, name=CLOUDPROVIDER)
    cluster = await room.providers.leads_to(secret)
    assert cluster
    registry = room.providers.registry
    await shoot.secret(CLOUDPROVIDER, kubeconfig=of(plane))
    await registry.join(providers.member(cluster, secret))

    await eventually(lambda: cluster in registry.members)
    with pytest.raises(Malformed, match="leads to another cluster now"):
        await room.providers.clusters.get(cluster)
    await shoot.secret(CLOUDPROVIDER, kubeconfig=of(other))
    assert (await room.providers.clusters.get(cluster)).host == other.url
