"""How an Envoy is attached to this host: where it runs, and how files and traffic reach it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from windowbox.models import loadbalancers


@dataclass(frozen=True)
class Published:
    """A port that has to be reachable from outside; some attachments need it before the start."""

    address: str
    port: int
    protocol: loadbalancers.Protocol


@dataclass(frozen=True)
class Order:
    """An Envoy to be started."""

    name: str
    """Its edge: `edge`, or one name for each Service where each has an Envoy of its own."""
    generation: int
    """Counts up: while one Envoy replaces another, both serve the same addresses."""
    files: Mapping[str, bytes]
    """Its bootstrap, and the file of owners."""
    published: Sequence[Published] = ()
    labels: Mapping[str, str] | None = None


class Running(Protocol):
    """An Envoy that was started, by this process or an earlier one."""

    name: str
    generation: int

    async def write(self, files: Mapping[str, bytes]) -> None:
        """Replace each file by a rename, in the order given."""

    async def read(self, file: str) -> bytes | None:
        """The content of a file; None if it does not exist."""

    async def ask(self, path: str, *, post: bool = False) -> bytes:
        """Send a request to the admin interface. Unreachable without an answer."""

    async def outdated(self) -> bool:
        """Whether a start today would use another program."""

    async def ended(self) -> None:
        """Wait until it has ended, whatever the reason."""

    async def end(self) -> None:
        """End it now. Open connections are cut."""

    async def route(self, routes: Mapping[str, str]) -> None:
        """Have exactly these routes for its traffic: prefix → next hop. Earlier ones of ours are removed."""


class Attachment(Protocol):
    """One way of running Envoys."""

    @property
    def folder(self) -> str:
        """The folder of the bootstrap and the admin socket, as Envoy sees it."""

    @property
    def discovery(self) -> str:
        """The socket from which Envoy gets its resources, as Envoy sees it."""

    @property
    def discovery_folder(self) -> Path:
        """The folder of that socket, as this process sees it."""

    @property
    def fixed_ports(self) -> bool:
        """Whether ports are published at the start only, so that other ports need another Envoy."""

    async def beside_us(self) -> bool:
        """Whether its Envoys share the network of this process: both reach the same addresses."""

    async def found(self, name: str) -> Sequence[Running]:
        """The running Envoys of that name, oldest generation first. They outlive this process."""

    async def names(self) -> Sequence[str]:
        """Every edge that has a running Envoy here."""

    async def owners(self, name: str) -> bytes | None:
        """The newest file of owners of that name that is whole, whether its Envoy runs or not."""

    async def start(self, order: Order) -> Running:
        """Start one. Idempotent: an Envoy of this name and generation is replaced."""

    async def prepare(self, addresses: Sequence[str]) -> Mapping[str, str]:
        """Direct these addresses to the Envoys. For those where that fails: what a person has to do."""

    async def added(self) -> Collection[str]:
        """The addresses that `prepare` added to this host, also in earlier processes."""

    async def remove(self, addresses: Collection[str]) -> None:
        """Remove some of the addresses that were added. No Envoy may serve them."""
