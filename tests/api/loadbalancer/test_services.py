"""Services that change at an awkward moment, ask for the impossible, or want an Envoy alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import defaultdict
from typing import Any

import pytest
from pydantic import ValidationError

from tests.api.loadbalancer.conftest import NODE, NODE_PORT, PLACE
from tests.support.balancerworld import EVENTS, BalancerWorld, address, asking, complete, condition, greeting
from tests.support.cases import cases
from tests.support.rules import rule
from tests.support.running import eventually
from windowbox.errors import Unreachable
from windowbox.models.objects import Object
from windowbox.models.refs import SERVICES, ObjectRef
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.loadbalancer.envoy.process import Process, Processes
from workers.loadbalancer.ipam import allocator
from workers.loadbalancer.ipam.results import AddressRequest
from workers.loadbalancer.loadbalancerpool import BalancerParts
from workers.loadbalancer.spec.selection import FINALIZER

LONG = "x" * 10_000
two_addresses = pytest.mark.serves("16/31", quota=100)


async def no_longer_in_use(parts: BalancerParts) -> None:
    """Wait until all addresses are only kept."""

    async def kept() -> bool:
        holders = parts.store.holders()
        return bool(holders) and all(holder.until for _, holder in holders)

    await eventually(kept)


@rule("LB-4-flipped", "LB-7-typechange")
@two_addresses
async def test_a_service_that_changes_class_early_is_released(world: BalancerWorld) -> None:
    async with world.worker():
        await world.serve("fickle")
    await world.merge("fickle", {"spec": {"type": "ClusterIP"}})
    await world.merge("fickle", {"spec": {"type": "LoadBalancer", "loadBalancerClass": "foreign/one"}})
    theirs = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    await world.merge("fickle", {"status": theirs}, part="status")
    async with world.worker() as parts:
        await world.until("fickle", lambda one: FINALIZER not in one.finalizers)
        await no_longer_in_use(parts)
        await world.reported("fickle", "DeletedLoadBalancer")
        found = await world.until("fickle", lambda one: not one.status.get("conditions"))
        assert address(found) == "192.0.2.1"


@two_addresses
async def test_services_of_a_cluster_can_be_left_to_another_program(world: BalancerWorld) -> None:
    async with world.worker():
        await world.serve("web")
    before = await world.get("web")
    world.settings = world.settings.model_copy(update={"clusters": ("shoot--*",)})
    async with world.worker() as parts:

        async def released() -> bool:
            return not list(parts.store.users())

        await eventually(released)
    after = await world.get("web")
    assert before
    assert after
    assert after.raw == before.raw


@two_addresses
async def test_an_interrupted_run_keeps_its_address(
    world: BalancerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.worker() as parts:
        await world.serve("web")
        rightly, calls = parts.store.keep, list[ObjectRef]()

        async def keep(ref: ObjectRef, *rest: Any) -> Any:
            calls.append(ref)
            if len(calls) == 1:
                raise Unreachable("the bus is away")
            return await rightly(ref, *rest)

        monkeypatch.setattr(parts.store, "keep", keep)
        await world.merge("web", {"spec": {"type": "ClusterIP"}})
        await no_longer_in_use(parts)
        await world.reported("web", "DeletingLoadBalancer")
        await world.reported("web", "DeletedLoadBalancer")


@two_addresses
async def test_a_service_deleted_in_the_time_of_grace_gives_its_address_back(world: BalancerWorld) -> None:
    async with world.worker() as parts:
        await world.serve("fickle")
        await world.merge("fickle", {"spec": {"type": "NodePort"}})
        await no_longer_in_use(parts)
        await world.until("fickle", lambda found: FINALIZER not in found.finalizers)
        await world.delete("fickle")

        await eventually(lambda: not parts.store.holders())


@two_addresses
async def test_a_waiting_service_that_becomes_invalid_holds_up_nobody(world: BalancerWorld) -> None:
    async with world.worker() as parts:
        await complete(parts)
        others = [ObjectRef("elsewhere", SERVICES.id, "ghosts", f"ghost-{number}") for number in range(2)]
        for ghost in others:
            await allocator.allocate(parts.store, AddressRequest(ghost, ghost.name, ("IPv4",)))
        for name in ("spoiled", "patient"):
            await world.service(name)
            await world.reported(name, "SyncLoadBalancerFailed")
        await world.merge("spoiled", {"metadata": asking(proxy_protocol="v9")})
        await world.reported("spoiled", "InvalidProxyProtocol")
        await parts.store.release(others[0])
        await world.served("patient")


SCTP = [{"name": "main", "port": 80}, {"name": "more", "port": 81, "protocol": "SCTP"}]


@cases(
    "change reason",
    ("an-annotation", {"metadata": asking(idle_timeout="soon")}, "InvalidIdleTimeout"),
    ("a-port", {"spec": {"ports": SCTP}}, "SCTPNotSupported"),
)
@two_addresses
async def test_a_refused_change_is_reported(
    world: BalancerWorld, change: dict[str, Any], reason: str
) -> None:
    async with world.worker():
        where = await world.serve("web")
        await world.reported("web", "EnsuredLoadBalancer")
        await world.merge("web", change)
        await world.reported("web", reason)
        await world.until("web", lambda one: bool(condition(one, "LoadBalancerDegraded")))
        assert await world.served("web") == where


@two_addresses
async def test_a_shared_address_refuses_a_port_in_use(world: BalancerWorld) -> None:
    shared = asking(share="word")
    async with world.worker():
        where = await world.serve("settled", port=81, node_port=NODE_PORT, metadata=shared)
        assert await world.serve("greedy", metadata=shared) == where
        ports = [{"name": "main", "port": 80}, {"name": "more", "port": 81}, {"name": "own", "port": 82}]
        await world.merge("greedy", {"spec": {"ports": ports}})
        assert "port 81/TCP of" in await world.reported("greedy", "SyncLoadBalancerFailed")

        async def has_its_own() -> bool:
            with contextlib.suppress(ConnectionRefusedError):
                _, writer = await asyncio.open_connection(where, 82)
                writer.close()
                return True
            return False

        await eventually(has_its_own)
        assert await greeting(where, 81) == "hello"
        await world.delete("settled")
        await world.until("greedy", lambda one: targets(one) == [80, 81, 82])


def targets(service: Object) -> list[int]:
    """The ports that its status shows."""
    [shown] = service.status["loadBalancer"]["ingress"]
    return [port["port"] for port in shown["ports"]]


@rule("LB-3-healthy")
@pytest.mark.serves("128/25")
async def test_each_of_many_healthy_services_has_two_events(world: BalancerWorld) -> None:
    names = [f"many-{number}" for number in range(15)]
    async with world.worker():
        for name in names:
            await world.service(name)
        for name in names:
            await world.served(name)

        async def all_reported() -> bool:
            return all("EnsuredLoadBalancer" in reasons for reasons in (await reasons_of(world)).values())

        await eventually(all_reported)
        # A last Service, whose Events come after anything that was still to be said of the others.
        await world.service("last")
        await world.reported("last", "EnsuredLoadBalancer")
        found = await reasons_of(world)
        assert {name: found[name] for name in names} == dict.fromkeys(names, HEALTHY)


HEALTHY = ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]


@rule("LB-3-healthy")
@pytest.mark.serves("128/25")
async def test_a_slow_envoy_is_no_failure_of_a_service(world: BalancerWorld) -> None:
    async with world.worker():
        await world.serve("first")
        [envoy] = await Processes(world.folder / "edge").found("edge")
        assert isinstance(envoy, Process)
        os.kill(envoy.pid, signal.SIGSTOP)
        try:
            await world.service("slow")
            await asyncio.sleep(4)  # longer than an Envoy takes that is not slow
        finally:
            os.kill(envoy.pid, signal.SIGCONT)
        await world.reported("slow", "EnsuredLoadBalancer")
        assert await world.reasons("slow") == HEALTHY


async def reasons_of(world: BalancerWorld) -> dict[str, list[str]]:
    """The reasons of the Events of each Service, oldest first."""
    found = defaultdict[str, list[str]](list)
    events = (await world.kube.page(EVENTS, namespace=world.namespace)).items
    for event in sorted(events, key=lambda one: int(one["metadata"]["resourceVersion"])):
        if event.get("source", {}).get("component") == "service-controller":
            found[event["involvedObject"]["name"]].append(event["reason"])
    return found


INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "outside": ({"metadata": asking(address="127.99.0.1")}, "127.99.0.1 is none of the addresses"),
    "nonsense": ({"metadata": asking(address="not an address")}, "not an address"),
    "taken": ({"metadata": asking(address=f"{PLACE}.23")}, "belongs to Service {namespace}/good"),
    "long": ({"metadata": asking(address=LONG)}, "loadbalancer.windowbox/address"),
    "proxy": ({"metadata": asking(proxy_protocol=LONG)}, "loadbalancer.windowbox/proxy-protocol"),
    "sctp": ({"ports": [{"port": 9, "protocol": "SCTP"}]}, "SCTP"),
    "share": ({"metadata": asking(share=LONG)}, "loadbalancer.windowbox/share"),
}


@pytest.mark.serves("16/28")
async def test_each_invalid_service_is_told_why_and_harms_no_other(world: BalancerWorld) -> None:
    await world.node("n" * 63 + "." + "n" * 63 + "." + "n" * 63 + "." + "n" * 61, NODE)
    async with world.worker() as parts:
        where = await world.serve("good", node_port=NODE_PORT, metadata=asking(address=f"{PLACE}.23"))
        for name, (asked, _) in INVALID.items():
            await world.service(name, **{"metadata": {}, **asked})
        for name, (_, words) in INVALID.items():
            assert len(await world.complaint(name, words.format(namespace=world.namespace))) <= 1100
            found = await world.get(name)
            assert found
            assert not address(found)
        assert await greeting(where) == "hello"
        assert [a for a, holder in parts.store.holders() if holder.namespace == world.namespace] == [where]
        for name in INVALID:
            await world.delete(name)
            await world.gone(name)
        assert await world.serve("n" * 63)


@cases(
    "prefixes",
    ("overlapping", ["10.0.0.0/24", "10.0.0.128/25"]),
    ("no-such-length", ["10.0.0.0/33"]),
    ("host-bits-set", ["10.0.0.1/24"]),
    ("nonsense", ["range"]),
    ("empty", []),
)
def test_invalid_ranges_are_refused_by_name(prefixes: list[str]) -> None:
    with pytest.raises(ValidationError) as refused:
        LoadBalancerSettings.model_validate({"ranges": [{"prefixes": prefixes}]})
    assert all(named in str(refused.value) for named in ("ranges", *prefixes))


@pytest.mark.serves("16/29", isolation=True)
async def test_each_isolated_service_has_its_own_envoy(world: BalancerWorld) -> None:
    async with world.worker():
        where = await world.serve("web", node_port=NODE_PORT)
        await world.serve("api")
        first, second = await envoys(world)
        other = second if await listens(first, where) else first
        os.kill(other.pid, signal.SIGKILL)
        assert await greeting(where) == "hello"

        async def back() -> bool:
            found = await envoys(world)
            return len(found) == 2 and other.pid not in {one.pid for one in found}

        await eventually(back)
        await world.delete("web")
        await world.gone("web")

        async def alone() -> bool:
            return len(await envoys(world)) == 1

        await eventually(alone)


async def envoys(world: BalancerWorld) -> list[Process]:
    """The Envoys that run."""
    attachment = Processes(world.folder / "edge")
    running = [one for name in await attachment.names() for one in await attachment.found(name)]
    return [one for one in running if isinstance(one, Process)]


async def listens(envoy: Process, address: str) -> bool:
    """Whether the Envoy listens there."""
    with contextlib.suppress(Unreachable):
        return f"{address}:" in (await envoy.ask("/listeners")).decode()
    return False
