"""A network in which each NATS server, and each worker, has a network namespace, and can be cut off."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.nodes import claims, hostresources, iproute, leftovers, network
from sandbox.options import Options
from tests.support import guardian, servers
from tests.support.natscluster import SIZE, NatsCluster, Seat
from tests.support.natstls import Tls

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
        chains = (
            f"chain in {{ type filter hook prerouting priority -500; iif != lo ip saddr {which} drop; }}\n"
        )
        if not deaf:
            chains += (
                f"chain out {{ type filter hook output priority -500; oif != lo ip daddr {which} drop; }}\n"
            )
        self._nft(f"table ip {_TABLE} {{\n{chains}}}\n")

    def repair(self) -> None:
        self._nft(f"table ip {_TABLE}\ndelete table ip {_TABLE}\n")

    def _nft(self, rules: str) -> None:
        iproute.run(
            "nsenter", f"--net={network.namespace_path(self.namespace)}", "nft", "-f", "-", stdin=rules
        )


@dataclass(frozen=True)
class NatsNetwork:
    """Three servers and some workers, each in a place of its own, on a bridge; this process is the host."""

    claim: str
    servers: Sequence[Place]
    workers: Sequence[Place]
    cluster: NatsCluster
    guardian: int
    """The process that clears what is left if this one is killed."""

    def repair(self) -> None:
        for place in (*self.servers, *self.workers):
            place.repair()


def missing() -> str | None:
    """Why no such network can be made here, or None."""
    if reason := hostresources.unsuited():
        return f"network namespaces need {reason}"
    return servers.missing("nats-server")


@contextlib.contextmanager
def opened(folder: Path, workers: int) -> Iterator[NatsNetwork]:
    """The network, with its servers running; removed even if this process is killed."""
    names = (*(f"n{number}" for number in range(SIZE)), *(f"w{number}" for number in range(workers)))
    leftovers.clear()
    with guardian.guarded() as guarding, hostresources.claimed(Options(), names) as (claim, plan):
        claims.begin(claim)
        try:
            network.build(claim, plan)
            places = [Place(one.name, claim.namespace(one.name), str(one.v4)) for one in plan.nodes]
            tls = Tls(folder / "tls", hosts=[place.address for place in places])
            seats = [Seat(place.address, 4222, 8222, 6222, place.namespace, tls) for place in places[:SIZE]]
            cluster = NatsCluster(folder, seats)
            cluster.start()
            try:
                yield NatsNetwork(claim.name, places[:SIZE], places[SIZE:], cluster, guarding)
            finally:
                cluster.stop()
        finally:
            leftovers.clear_one(claim)
