"""Hosts that share the addresses: which of them serves a Service."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass

from bus import streams, subjects
from bus.leases import members
from bus.leases.leases import Leases
from bus.leases.members import Members
from bus.transport.buckets import Bucket
from bus.transport.connection import Bus
from bus.workqueue.queue import Queue
from tests.servers.ipam import stores
from tests.support.running import eventually, running
from windowbox.models.loadbalancers import Family, LoadBalancer
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.edge.placement import Placement
from workers.loadbalancer.edge.reporter import NodeReport, StateReporter
from workers.loadbalancer.edgestate import EdgeState, States
from workers.loadbalancer.ipam.store import AddressStore
from workers.loadbalancer.tracked import LoadBalancers, Tracked


@dataclass
class Host:
    """A host without an Envoy."""

    placement: Placement
    reporter: StateReporter
    states: States
    store: AddressStore

    def address(self, ref: ObjectRef) -> str:
        return self.store.held(ref)[0][0]

    def knows(self, balancers: Iterable[ObjectRef], holder: str) -> bool:
        return all(self.placement.holder(ref) == holder for ref in balancers)


@contextlib.asynccontextmanager
async def host(bus: Bus, store: AddressStore, name: str) -> AsyncIterator[Host]:
    """A host with its lease."""

    async def hold() -> None:
        await asyncio.Event().wait()

    leases, known = Leases(bus, name, "edge"), Members(bus, "edge")
    states = States(Bucket(bus, streams.EDGES), name)
    held = leases.while_held(members.lease("edge", name), hold)
    async with running(leases.run(), known.run(), states.bucket.run(), held), asyncio.TaskGroup() as group:
        await known.complete.wait()
        await states.bucket.complete.wait()
        placement = Placement(name, known, states, store, lambda: None)
        nodes = NodeReport(lambda *_: "", dict)
        queue = Queue(bus, "loadbalancer")
        reporter = StateReporter(states, queue, group, nodes, lambda: None, placement)
        with placement.following():
            yield Host(placement, reporter, states, store)


@contextlib.asynccontextmanager
async def two(bus: Bus) -> AsyncIterator[tuple[Host, Host, LoadBalancers]]:
    """Two hosts that know one another, and some load balancers."""
    async with stores.settled(bus, "10.0.0.0/26", "fd00::/120") as store:
        balancers: LoadBalancers = Tracked()
        for name in (f"web-{number}" for number in range(8)):
            await stores.allocate(store, name)
            ref: ObjectRef = stores.service(name)
            balancers.put(ref, LoadBalancer(ref, name, ()))
        async with host(bus, store, "a") as a, host(bus, store, "b") as b:
            await eventually(lambda: a.placement.hosts == b.placement.hosts == {"a", "b"})
            yield a, b, balancers


async def test_hosts_agree_on_what_each_of_them_takes(bus: Bus) -> None:
    async with two(bus) as (a, b, balancers):
        wanted = [dict(one.placement.untaken(balancers)) for one in (a, b)]
        assert all(wanted)
        assert wanted[0] | wanted[1] == balancers
        assert not wanted[0].keys() & wanted[1].keys()
        for one, mine in zip((a, b), wanted, strict=True):
            assert one.placement.ours(balancers) == {}  # until its name is in their states
            await one.reporter.take(mine)
            assert one.placement.ours(balancers) == mine


async def test_what_another_living_host_holds_is_not_taken(bus: Bus) -> None:
    async with two(bus) as (a, b, balancers):
        mine = dict(a.placement.untaken(balancers))
        await b.reporter.take(mine)
        await a.reporter.take(mine)
        await eventually(lambda: a.knows(mine, "b"))
        assert a.placement.ours(balancers) == {}
        assert a.placement.untaken(balancers) == {}

        assert b.placement.moving(balancers) == dict.fromkeys(mine, "a")
        await b.reporter.hand_over(b.placement.moving(balancers))
        await eventually(lambda: a.placement.ours(balancers) == mine)
        await eventually(lambda: b.placement.moving(balancers) == {})


async def test_others_take_what_a_host_held_that_is_gone(bus: Bus) -> None:
    async with two(bus) as (a, b, balancers):
        async with host(bus, a.store, "c") as c:
            everybody = (a, b, c)
            await eventually(lambda: {one.placement.hosts for one in everybody} == {frozenset("abc")})
            wanted = [dict(one.placement.untaken(balancers)) for one in everybody]
            for one, mine in zip(everybody, wanted, strict=True):
                await one.reporter.take(mine)
            held = wanted[2]
            await eventually(lambda: a.knows(held, "c") and b.knows(held, "c"))
            assert not a.placement.untaken(balancers)
        await eventually(lambda: a.placement.hosts == b.placement.hosts == {"a", "b"})
        taken = [dict(one.placement.untaken(balancers)) for one in (a, b)]
        assert taken[0] | taken[1] == held
        assert not taken[0].keys() & taken[1].keys()

        # What nobody wants any longer is withdrawn, though its host is gone.
        balancers.put(next(iter(held)), None)
        assert a.placement.unwanted(balancers) == b.placement.unwanted(balancers) == {next(iter(held))}


async def test_services_that_share_an_address_are_on_one_host(bus: Bus) -> None:
    async with two(bus) as (a, _, balancers):
        # Of two families, of the first and of the second one: only through the first do all belong together.
        families_of_three: Sequence[Sequence[Family]] = (stores.BOTH, stores.V4, ["IPv6"])
        groups = [[stores.service(f"{word}-{one}") for one in range(3)] for word in "klmnopqr"]
        for group in groups:
            for port, (ref, families) in enumerate(zip(group, families_of_three, strict=True)):
                share = {"share": ref.name[0], "ports": [f"{port}/TCP"]}
                await stores.allocated(a.store, ref.name, families, **share)
        await eventually(lambda: all(a.store.entries(ref) for group in groups for ref in group))
        places = [{a.placement.placed(ref) for ref in group} for group in groups]
        assert all(len(hosts) == 1 for hosts in places)
        assert {"a"} in places
        assert {"b"} in places

        # One that gets another address is placed by that.
        moved, stays, _ = groups[0]
        there = a.placement.placed(moved)
        other = next(ref for ref in balancers if a.placement.placed(ref) != there)
        [address] = [one for one, _ in a.store.entries(other)]
        await a.store.release(other)
        assert await stores.allocated(a.store, moved.name, requested=[address]) == [address]
        await eventually(lambda: [one for one, _ in a.store.entries(moved)] == [address])
        assert a.placement.placed(moved) != there == a.placement.placed(stays)


async def test_addresses_of_other_hosts_are_known(bus: Bus) -> None:
    async with two(bus) as (a, b, balancers):
        (mine, *_), (theirs, *_) = (list(one.placement.untaken(balancers)) for one in (a, b))
        assert a.placement.is_elsewhere(a.address(theirs))
        assert not a.placement.is_elsewhere(a.address(mine))
        await b.reporter.take({mine: balancers[mine]})  # as it had been placed there before
        await eventually(lambda: a.knows([mine], "b"))
        assert a.placement.is_elsewhere(a.address(mine))
        assert b.placement.is_elsewhere(a.address(mine))


async def test_a_host_that_holds_nothing_withdraws_nothing(bus: Bus) -> None:
    async with two(bus) as (a, b, balancers):
        mine = dict(a.placement.untaken(balancers))
        await a.reporter.take(mine)
        await eventually(lambda: b.knows(mine, "a"))
        assert not b.reporter.withdrawn(Tracked())
        assert a.reporter.withdrawn(Tracked())


async def test_what_the_bus_has_lost_stays_with_its_host(bus: Bus) -> None:
    async with two(bus) as (a, b, balancers):
        mine = dict(a.placement.untaken(balancers))
        await a.reporter.take(mine)
        await eventually(lambda: b.knows(mine, "a"))
        for ref in mine:
            await b.states.bucket.delete(subjects.key(ref), None)
        await eventually(lambda: not any(b.placement.holder(ref) for ref in mine))
        assert a.placement.ours(balancers) == mine
        assert not b.placement.untaken(balancers).keys() & mine.keys()


async def test_each_host_has_to_testify(bus: Bus) -> None:
    async with two(bus) as (a, b, _):
        await a.states.testify({"c": ("10.0.0.1",)}, hosts=["a", "b"])
        await eventually(a.states.has_testified)
        assert not a.states.testified()
        await b.states.testify(hosts=["a", "b"])
        await eventually(a.states.testified)
        assert a.states.known() == set()


async def test_a_service_of_one_edge_is_the_next_ones_when_the_lease_is_free(bus: Bus) -> None:
    """From one edge to several: a state without a host is that of the lease `edge`."""
    async with two(bus) as (a, b, balancers), stores.opened(bus, "10.0.0.0/26") as store:
        ref = next(iter(a.placement.untaken(balancers)))
        async with host(bus, store, ""):
            await eventually(lambda: a.placement.hosts == {"a", "b", ""})
            await b.states.put(ref, EdgeState(uid="u", digest="d", since=""))
            await eventually(lambda: a.placement.holder(ref) == "")
            assert ref not in a.placement.untaken(balancers)
        await eventually(lambda: a.placement.hosts == {"a", "b"})
        assert ref in a.placement.untaken(balancers)
