"""The states of load balancers, which the edge reports in the bucket `edges`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

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
"""The key of the testimony in the bucket."""


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


class States:
    """The states of all load balancers, written by the edge and read by the runs of Services."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket

    async def get(self, ref: ObjectRef) -> EdgeState | None:
        found = await self.bucket.get(subjects.key(ref))
        return EdgeState.model_validate_json(found.value) if found.value else None

    async def put(self, ref: ObjectRef, state: EdgeState) -> None:
        leases.check()
        await self.bucket.put(subjects.key(ref), state.encoded(), None)

    async def remove(self, ref: ObjectRef) -> None:
        leases.check()
        await self.bucket.delete(subjects.key(ref), None)

    def of(self, ref: ObjectRef) -> EdgeState | None:
        """The state that this process knows."""
        entry = self.bucket.entries.get(subjects.key(ref))
        return EdgeState.model_validate_json(entry.value) if entry and entry.value else None

    async def testify(self, nodes: Mapping[str, tuple[str, ...]] | None = None) -> None:
        """Declare that the states of all Services whose addresses an edge knows are published.

        `nodes` are the addresses of nodes by cluster; None: they have not changed.
        """
        leases.check()
        testimony = Testimony(nodes=dict(self.nodes() if nodes is None else nodes))
        await self.bucket.put(TESTIFIED, testimony.encoded(), None)

    def nodes(self) -> dict[str, tuple[str, ...]]:
        """By cluster, the addresses of nodes of the last testimony."""
        entry = self.bucket.entries.get(TESTIFIED)
        return Testimony.model_validate_json(entry.value).nodes if entry and entry.value else {}

    def testified(self) -> bool:
        """Whether an edge has declared that, and the bus has not lost it since."""
        entry = self.bucket.entries.get(TESTIFIED)
        return self.bucket.complete.is_set() and bool(entry and entry.value)

    def known(self) -> set[ObjectRef]:
        """The Services whose states this process knows."""
        entries = self.bucket.entries.items()
        return {_ref(key) for key, entry in entries if entry.value and key != TESTIFIED}

    def on_state(self, act: Callable[[ObjectRef, bytes | None], None]) -> Callable[[], None]:
        """Call `act` with each state that has changed. Returns how to unsubscribe."""
        return self.bucket.on_change(
            lambda key, value: act(subjects.ref(key), value) if key != TESTIFIED else None
        )


@lru_cache(maxsize=1 << 16)
def _ref(key: str) -> ObjectRef:
    return subjects.ref(key)
