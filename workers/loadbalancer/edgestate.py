"""The states of load balancers, which the edge reports in the bucket `edges`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache

import orjson

from bus import subjects
from bus.leases import leases
from bus.messages import Message
from bus.transport.buckets import Bucket
from windowbox.models.loadbalancers import Family
from windowbox.models.refs import ObjectRef

POOL = "loadbalancer"
"""The pool whose runs read the states."""

MOST_OCCUPIED = 8
"""Addresses with an occupied port that a Service tries. Then it stays at the last one."""

TESTIFIED = "testified"
"""The key of the testimony in the bucket; that of a host among several has the host's name behind it.

It is one token. Keys of Services are four."""


def testimony_of(host: str) -> str:
    """The key of a host's testimony."""
    return f"{TESTIFIED}={host.replace('.', '_')}" if host else TESTIFIED


def is_testimony(key: str) -> bool:
    return "." not in key


def holder_in(state: bytes) -> str:
    """The holder that an encoded state names."""
    return str(orjson.loads(state).get("host", ""))


class EdgeState(Message):
    """The state of one load balancer. The edge removes it with the load balancer."""

    uid: str
    digest: str
    """Hash of what the Service asked for: see `listeners.digest`."""
    since: str
    """When the edge first reported this."""
    problems: dict[str, str] = {}  # noqa: RUF012  (pydantic copies it)
    """By place (`80/TCP`): why this port is not served."""
    backends: tuple[str, ...] = ()
    """The names of the nodes that get traffic."""
    lacking: str = ""
    """Why there are no nodes, for people."""
    unreached: dict[Family, str] = {}  # noqa: RUF012
    """If there are nodes of one family only, why there are none of the other."""
    refused_nodes: tuple[str, ...] = ()
    """Nodes with an address that is refused, and why: `node m1: …`."""
    addresses: tuple[str, ...] = ()
    """The addresses that the edge serves for it."""
    occupied: dict[str, tuple[str, ...]] = {}  # noqa: RUF012  (pydantic copies it)
    """By address, the places (`80/TCP`) that other processes of the host hold: of its address and its former
    ones, the latest last. Empty as soon as all ports are served."""
    host: str = ""
    """The host that serves it, its holder, if several hosts share the addresses."""

    def same(self, other: EdgeState | None) -> bool:
        """Whether both are equal, apart from `since`."""
        return other is not None and self.model_copy(update={"since": other.since}) == other


class Testimony(Message):
    """An edge has published the addresses of all Services that it serves.

    It also names the clusters whose nodes had their addresses first, for the next edge: of two clusters that
    report the same one, none can prove that it was the first.
    """

    nodes: dict[str, tuple[str, ...]] = {}  # noqa: RUF012  (pydantic copies it)
    """By cluster."""
    hosts: tuple[str, ...] = ()
    """All hosts that live, if several share the addresses: each has a testimony of its own."""


class States:
    """The states of all load balancers, written by the edge and read by the runs of Services."""

    def __init__(self, bucket: Bucket, host: str = "") -> None:
        self.bucket = bucket
        self._testimony = testimony_of(host)

    async def get(self, ref: ObjectRef) -> EdgeState | None:
        found = await self.bucket.get(subjects.key(ref))
        return EdgeState.model_validate_json(found.value) if found.value else None

    async def put(self, ref: ObjectRef, state: EdgeState, expected: int | None = None) -> None:
        """Write a state; WrongSequence if `expected` is given and is not the last sequence of its key."""
        leases.check()
        await self.bucket.put(subjects.key(ref), state.encoded(), expected)

    async def remove(self, ref: ObjectRef) -> None:
        leases.check()
        await self.bucket.delete(subjects.key(ref), None)

    def of(self, ref: ObjectRef) -> EdgeState | None:
        """The state that this process knows."""
        entry = self.bucket.entries.get(subjects.key(ref))
        return EdgeState.model_validate_json(entry.value) if entry and entry.value else None

    async def testify(
        self, nodes: Mapping[str, tuple[str, ...]] | None = None, hosts: Iterable[str] = ()
    ) -> None:
        """Declare that the states of all Services whose addresses an edge knows are published.

        `nodes` are the addresses of nodes by cluster; None: they have not changed. So are `hosts`.
        """
        leases.check()
        last = self._testimonies().get(self._testimony, Testimony())
        nodes = last.nodes if nodes is None else dict(nodes)
        testimony = Testimony(nodes=nodes, hosts=tuple(sorted(hosts)) or last.hosts)
        await self.bucket.put(self._testimony, testimony.encoded(), None)

    def nodes(self) -> dict[str, tuple[str, ...]]:
        """By cluster, the addresses of nodes of this host's last testimony; without one, of all hosts'."""
        found = self._testimonies()
        if own := found.get(self._testimony):
            return own.nodes
        return {cluster: addresses for one in found.values() for cluster, addresses in one.nodes.items()}

    def testified(self) -> bool:
        """Whether each edge has declared that, and the bus has not lost it since."""
        found = self._testimonies()
        awaited = {testimony_of(host) for one in found.values() for host in one.hosts}
        return self.bucket.complete.is_set() and bool(found) and awaited <= found.keys()

    def has_testified(self) -> bool:
        """Whether this host has declared that."""
        return self.bucket.complete.is_set() and self._testimony in self._testimonies()

    def _testimonies(self) -> dict[str, Testimony]:
        entries = self.bucket.entries.items()
        found = {key: entry.value for key, entry in entries if is_testimony(key)}
        return {key: Testimony.model_validate_json(value) for key, value in found.items() if value}

    def known(self) -> set[ObjectRef]:
        """The Services whose states this process knows."""
        entries = self.bucket.entries.items()
        return {_ref(key) for key, entry in entries if entry.value and not is_testimony(key)}

    def holders(self) -> Iterator[tuple[ObjectRef, str]]:
        """The holder of each known state."""
        for key, entry in self.bucket.entries.items():
            if entry.value and not is_testimony(key):
                yield _ref(key), holder_in(entry.value)

    def on_state(self, act: Callable[[ObjectRef, bytes | None], None]) -> Callable[[], None]:
        """Call `act` with each state that has changed. Returns how to unsubscribe."""
        return self.bucket.on_change(
            lambda key, value: None if is_testimony(key) else act(subjects.ref(key), value)
        )


@lru_cache(maxsize=1 << 16)
def _ref(key: str) -> ObjectRef:
    return subjects.ref(key)
