"""The network between three servers, and before them, breaks: nothing is lost or done twice at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from bus import streams
from bus.transport.connection import Bus, connected
from sandbox.nodes import claims, hostresources, iproute, leftovers, network
from sandbox.options import Options
from tests.servers.bus.handlers import POOL, comes_to_rest, overlaps
from tests.servers.bus.workers import Wishing, workers
from tests.support import guardian, servers
from tests.support.natscluster import SIZE, NatsCluster, Seat
from tests.support.natsserver import ensured
from tests.support.natstls import Tls
from tests.support.rules import rule
from tests.support.running import eventually
from windowbox.errors import WindowboxError

logger = logging.getLogger(__name__)

_TABLE = "windowbox_partition"


@dataclass(frozen=True)
class Place:
    """A namespace with one address."""

    name: str
    namespace: str
    address: str

    def cut(self, *others: str, deaf: bool = False) -> None:
        """Drop every packet from and to the others, by their addresses; from and to all if none is named.

        With `deaf`, what goes to them arrives.
        """
        which = f"{{ {', '.join(others)} }}" if others else "0.0.0.0/0"
        hook = "type filter hook {} priority -500;".format
        chains = [f"chain in {{ {hook('prerouting')} iif != lo ip saddr {which} drop; }}"]
        chains += [] if deaf else [f"chain out {{ {hook('output')} oif != lo ip daddr {which} drop; }}"]
        self._nft("\n".join([f"table ip {_TABLE} {{", *chains, "}\n"]))

    def repair(self) -> None:
        self._nft(f"table ip {_TABLE}\ndelete table ip {_TABLE}\n")

    def _nft(self, rules: str) -> None:
        iproute.run(
            "nsenter", f"--net={network.namespace_path(self.namespace)}", "nft", "-f", "-", stdin=rules
        )


@dataclass(frozen=True)
class NatsNetwork:
    """Three servers and some workers, each in a place of its own, on a bridge; this process is the host."""

    servers: Sequence[Place]
    workers: Sequence[Place]
    cluster: NatsCluster

    def repair(self) -> None:
        for place in (*self.servers, *self.workers):
            place.repair()


@contextlib.contextmanager
def opened(folder: Path, workers: int) -> Iterator[NatsNetwork]:
    """The network, with its servers running; removed even if this process is killed."""
    names = (*(f"n{number}" for number in range(SIZE)), *(f"w{number}" for number in range(workers)))
    leftovers.clear()
    with guardian.guarded(), hostresources.claimed(Options(), names) as (claim, plan):
        claims.begin(claim)
        try:
            network.build(claim, plan)
            places = [Place(one.name, claim.namespace(one.name), str(one.v4)) for one in plan.nodes]
            tls = Tls(folder / "tls", hosts=[place.address for place in places])
            seats = [Seat(place.address, 4222, 8222, 6222, place.namespace, tls) for place in places[:SIZE]]
            cluster = NatsCluster(folder, seats)
            cluster.start()
            try:
                yield NatsNetwork(places[:SIZE], places[SIZE:], cluster)
            finally:
                cluster.stop()
        finally:
            leftovers.clear_one(claim)


_ROUNDS = int(os.environ.get("CHAOS_PARTITIONS", "60" if os.environ.get("CHAOS") == "long" else "2"))
_OBJECTS, _WORKERS = 12, 3
_SECONDS = (4.0, 16.0)
"""How long a partition lasts: shorter and longer than what servers and workers wait for one another."""


@pytest.fixture(name="network")
def made(tmp_path: Path) -> Iterator[NatsNetwork]:
    if reason := hostresources.unsuited():
        pytest.skip(f"network namespaces need {reason}")
    servers.need("nats-server")
    with opened(tmp_path, _WORKERS) as network:
        yield network


@pytest.mark.long  # servers/bus/test_cluster.py lets servers die; test_crashes.py cuts workers off
@pytest.mark.timeout(300 + 40 * _ROUNDS)
@rule("V-3", "B-7")
async def test_nothing_is_lost_or_doubled_by_partitions(network: NatsNetwork) -> None:
    """A leader that is cut off refuses items as queued: the sweep after the election finds their wishes."""
    cluster = network.cluster
    async with connected(cluster.access) as bus, workers(cluster.access, ack_wait=4) as crew:
        await ensured(bus)
        for place in network.workers:
            await crew.start(place.namespace)
        wishing = Wishing(bus, crew, "lasting")
        async with wishing.going_on(_OBJECTS, patience=90, sweeping=True):
            first = random.randrange(100)
            for turn in range(_ROUNDS):
                await break_network(network, bus, first + turn)
        await comes_to_rest(bus, patience=90)
        assert await doubled(bus) == []
    assert wishing.wished >= _OBJECTS  # how many more depends on how long the partitions kept them waiting
    assert overlaps(crew.story.all) == []
    assert [said.name for said in crew.story.all if said.word == "aside"] == []
    logger.warning("%d partitions: %s", _ROUNDS, wishing.figures())


async def break_network(network: NatsNetwork, bus: Bus, turn: int) -> None:
    """One partition, and its end."""
    leader = await leading(network, bus)
    others = [place.address for place in network.servers if place != leader]
    worker = random.choice(network.workers)

    def cut_workers() -> None:
        for place in network.workers:
            place.cut(leader.address)

    def scatter() -> None:
        for place in network.servers:
            place.cut(*(other.address for other in network.servers if other != place))

    breaks: dict[str, Callable[[], None]] = {
        "the leader is cut off from the other servers, not from clients": lambda: leader.cut(*others),
        "a worker is cut off from the leader": lambda: worker.cut(leader.address),
        "a server is cut off": lambda: random.choice(network.servers).cut(),
        "the leader is cut off": lambda: leader.cut(),
        "a worker is cut off": lambda: worker.cut(),
        "the leader does not hear the other servers": lambda: leader.cut(*others, deaf=True),
        "all workers are cut off from the leader": cut_workers,
        "no server hears another": scatter,
    }
    what, seconds = list(breaks)[turn % len(breaks)], random.uniform(*_SECONDS)
    logger.warning("for %.0f s, %s", seconds, what)
    breaks[what]()
    await asyncio.sleep(seconds)  # as long as the partition lasts
    network.repair()
    await asyncio.to_thread(network.cluster.wait)
    assert await doubled(bus) == []
    await asyncio.sleep(2)  # the network is whole for a while


async def leading(network: NatsNetwork, bus: Bus) -> Place:
    """The server that leads the stream of items."""

    async def look() -> Place | None:
        try:
            name = (await bus.api(f"STREAM.INFO.{streams.WORK}", repeat=True))["cluster"].get("leader")
        except WindowboxError:
            return None
        return next((place for place in network.servers if place.name == name), None)

    found = await eventually(look)
    assert found
    return found


async def doubled(bus: Bus) -> list[str]:
    """The subjects of which there is more than one item, or more than one wish."""

    async def look() -> dict[str, int] | None:
        counted: dict[str, int] = {}
        try:
            for stream in (streams.WORK, streams.TRIGGERS):
                request = {"subjects_filter": f"*.{POOL}.>"}
                info = await bus.api(f"STREAM.INFO.{stream}", request, repeat=True)
                counted |= info["state"].get("subjects") or {}
        except WindowboxError:
            return None
        return counted or {"none": 0}

    found = await eventually(look, patience=60)
    assert found
    return [subject for subject, count in found.items() if count > 1]
