"""How an Envoy is attached to this host: where it runs, how files reach it, how addresses are routed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from windowbox.models import loadbalancers


@dataclass(frozen=True)
class Published:
    """A port that has to be reachable from outside, for attachments that must know before they start."""

    address: str
    port: int
    protocol: loadbalancers.Protocol


@dataclass(frozen=True)
class Order:
    """An Envoy to be started."""

    name: str
    """Which edge it serves: `edge`, or one name for each Service where each has an Envoy of its own."""
    generation: int
    """Counts up: while one Envoy makes way for another, both serve the same addresses."""
    files: Mapping[str, bytes]
    """Its bootstrap and its first configuration."""
    published: Sequence[Published] = ()
    labels: Mapping[str, str] | None = None


class Running(Protocol):
    """An Envoy that has been started, by us or by whoever was here before us."""

    name: str
    generation: int

    async def write(self, files: Mapping[str, bytes]) -> None:
        """Put each file into its place in one step, in the order given, so that Envoy notices each."""

    async def read(self, file: str) -> bytes | None:
        """What was last written into a file; None if there is none."""

    async def ask(self, path: str, *, post: bool = False) -> bytes:
        """Ask the admin interface. Unreachable if nobody answers."""

    async def outdated(self) -> bool:
        """Whether another program than this would be started today."""

    async def ended(self) -> None:
        """Wait until it has ended, whatever the reason."""

    async def end(self) -> None:
        """End it now. Connections that are left are cut."""

    async def route(self, routes: Mapping[str, str]) -> None:
        """Have exactly these routes for our traffic: prefix → next hop. Those that we set before go."""


@runtime_checkable
class HasPid(Protocol):
    """What runs as a process of this host."""

    pid: int


class Attachment(Protocol):
    """One way of running Envoys."""

    @property
    def folder(self) -> str:
        """Where the files are, as Envoy itself sees it."""

    @property
    def fixed_ports(self) -> bool:
        """Whether ports are published once, at the start, so that other ports need another Envoy."""

    async def beside_us(self) -> bool:
        """Whether its Envoys have the very network that this process has: they reach what we reach."""

    async def found(self, name: str) -> Sequence[Running]:
        """The Envoys of that name that are running, oldest generation first. They survive us."""

    async def names(self) -> Sequence[str]:
        """Every edge that has an Envoy running here."""

    async def kept(self, name: str) -> Mapping[str, bytes]:
        """All files of the newest Envoy of that name, running or not; empty if nothing is left of any."""

    async def start(self, order: Order) -> Running:
        """Start one. Safe to repeat: what is left of an earlier try with this generation makes way."""

    async def prepare(self, addresses: Sequence[str]) -> Mapping[str, str]:
        """Have these addresses arrive at the Envoys. For those that cannot: what a person has to do."""

    async def added(self) -> Collection[str]:
        """The addresses that were added to this host, so that they arrive, by us or our predecessors."""

    async def remove(self, addresses: Collection[str]) -> None:
        """Remove some of those that were added. Nothing may be served on them."""
