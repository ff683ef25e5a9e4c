"""The states of load balancers, which the edge reports by the bucket `edges`."""

from __future__ import annotations

from collections.abc import Callable

from bus import subjects
from bus.leases import leases
from bus.messages import Message
from bus.transport.buckets import Bucket
from windowbox.models.loadbalancers import Family
from windowbox.models.refs import ObjectRef

POOL = "loadbalancer"
"""The pool whose runs read the states."""


MOST_OCCUPIED = 8
"""After so many addresses with an occupied port a Service stays where it is."""

TESTIFIED = "testified"
"""A key in the bucket of the states that is no load balancer."""


class EdgeState(Message):
    """The state of one load balancer. Removed when the edge serves it no longer."""

    uid: str
    digest: str
    """Of what the Service asked for: see `listeners.digest`."""
    since: str
    """When the edge first reported this."""
    problems: dict[str, str] = {}  # noqa: RUF012  (pydantic copies it)
    """By `80/TCP`: why this port is not served. If all ports have problems, nothing is served."""
    backends: tuple[str, ...] = ()
    """The nodes that traffic goes to."""
    lacking: str = ""
    """Why there are no nodes, for people."""
    unreached: dict[Family, str] = {}  # noqa: RUF012
    """If there are nodes of one family only, why there are none of the other."""
    refused_nodes: tuple[str, ...] = ()
    """Nodes with an address that is refused, and why: `node m1: …`."""
    addresses: tuple[str, ...] = ()
    """Those that are served for it."""
    occupied: dict[str, tuple[str, ...]] = {}  # noqa: RUF012  (pydantic copies it)
    """By address, the ports (`80/TCP`) that other processes of the host hold there: of its address, and of
    those that it had before, the latest last. Empty as soon as all ports are served."""

    def same(self, other: EdgeState | None) -> bool:
        """Whether both say the same, apart from `since`."""
        return other is not None and self.model_copy(update={"since": other.since}) == other


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

    async def testify(self) -> None:
        """Say that the states of all Services are here whose addresses an edge knows."""
        leases.check()
        await self.bucket.put(TESTIFIED, b"{}", None)

    def testified(self) -> bool:
        """Whether that was said, and not forgotten since."""
        return self.bucket.complete.is_set() and TESTIFIED in self._values()

    def _values(self) -> dict[str, bytes]:
        return {key: entry.value for key, entry in self.bucket.entries.items() if entry.value}

    def known(self) -> set[ObjectRef]:
        """The Services whose states this process knows."""
        return {subjects.ref(key) for key in self._values() if key != TESTIFIED}

    def on_state(self, act: Callable[[ObjectRef, bytes | None], None]) -> Callable[[], None]:
        """Call `act` with each state that is another than before. Returns what ends that."""
        return self.bucket.on_change(
            lambda key, value: act(subjects.ref(key), value) if key != TESTIFIED else None
        )
