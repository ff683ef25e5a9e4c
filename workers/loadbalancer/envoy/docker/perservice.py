"""An Envoy in a container for each Service, whose ports Docker publishes on the host: works anywhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from windowbox.clients.docker import Container, Engine
from workers.loadbalancer.envoy import bootstrap, jsonfiles, protobuf
from workers.loadbalancer.envoy.attachments import Order
from workers.loadbalancer.envoy.docker import boxes
from workers.loadbalancer.envoy.docker.boxes import FOLDER, Household
from workers.loadbalancer.envoy.docker.envoys import DockerEnvoy, DockerEnvoys
from workers.loadbalancer.envoy.docker.files import Files
from workers.loadbalancer.envoy.docker.host import Aliases
from workers.loadbalancer.envoy.docker.routes import SCRIPT, Inside
from workers.loadbalancer.envoy.protobuf import Resource

_ASKED = "asked-"
# The script is there only if there are routes; where it fails, Envoy serves what needs none.
_COMMAND = ("sh", "-c", f'[ ! -e /{SCRIPT} ] || sh /{SCRIPT}; exec "$@"', "sh", "envoy")


class DockerPerService:
    """Docker cannot change the ports of a container: other ports, another container.

    Envoy sees Docker's address in the place of most clients', so source ranges are worth little here.
    """

    def __init__(
        self, engine: Engine, household: Household, network: str, folder: Path | None = None
    ) -> None:
        self._engine = engine
        self._household = household
        self._network = network
        self._aliases = Aliases(engine, folder)
        self._envoys = DockerEnvoys(engine, household, folder, self)

    @property
    def folder(self) -> str:
        return FOLDER

    @property
    def fixed_ports(self) -> bool:
        return True

    async def beside_us(self) -> bool:
        return False

    async def names(self) -> Sequence[str]:
        return await self._envoys.names()

    async def found(self, name: str) -> Sequence[DockerEnvoy]:
        return [_inward(envoy) for envoy in await self._envoys.found(name)]

    async def kept(self, name: str) -> Mapping[str, bytes]:
        return asked(await self._envoys.kept(name))

    async def start(self, order: Order) -> DockerEnvoy:
        body = boxes.envoy(self._household, order, command=[*_COMMAND, *bootstrap.arguments(FOLDER)])
        ports = boxes.publishing(order.published)
        body["ExposedPorts"] = ports["ExposedPorts"]
        body["HostConfig"] |= {
            "NetworkMode": self._network,
            "PortBindings": ports["PortBindings"],
            "CapAdd": ["NET_ADMIN"],
        }
        inner = Order(order.name, order.generation, inward(order.files), order.published, order.labels)
        box = boxes.service_box(order.name)
        return _inward(await self._envoys.start(inner, box, body))

    async def prepare(self, addresses: Sequence[str]) -> Mapping[str, str]:
        return await self._aliases.prepare(addresses)

    async def added(self) -> Collection[str]:
        return self._aliases.added()

    async def remove(self, addresses: Collection[str]) -> None:
        await self._aliases.remove(addresses)

    async def route(self, container: Container, routes: Mapping[str, str]) -> None:
        await Inside(self._engine, container.id).set("", routes)

    async def left(self, container: Container) -> None:
        """All that it had went with its container."""


def _inward(envoy: DockerEnvoy) -> DockerEnvoy:
    envoy.files = Inward(envoy.files)
    return envoy


@dataclass(frozen=True)
class Inward:
    """Files whose listeners stand on all of the container's addresses, to which Docker sends the traffic.

    What was asked for is kept beside, to be read again.
    """

    files: Files

    async def write(self, files: Mapping[str, bytes]) -> None:
        await self.files.write(inward(files))

    async def read(self, file: str) -> bytes | None:
        listeners = (bootstrap.LISTENERS, jsonfiles.LISTENERS)
        return await self.files.read(_ASKED + file if file in listeners else file)

    async def all(self) -> Mapping[str, bytes]:
        return asked(await self.files.all())

    async def ask(self, path: str, *, post: bool) -> bytes:
        return await self.files.ask(path, post=post)

    def remove(self) -> None:
        self.files.remove()


def inward(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files as Envoy gets them, and what they were made from."""
    made = dict(files)
    if (listeners := made.get(bootstrap.LISTENERS)) is not None:
        made[bootstrap.LISTENERS] = _on_all_addresses(listeners)
        made[_ASKED + bootstrap.LISTENERS] = listeners
    return made


def asked(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files as they were asked for."""
    return {name: files.get(_ASKED + name, files[name]) for name in files if not name.startswith(_ASKED)}


def _on_all_addresses(listeners: bytes) -> bytes:
    entries = b"".join(_on_all(protobuf.resource(entry)) for entry in protobuf.entries(listeners))
    return protobuf.response(protobuf.version(listeners), entries)


def _on_all(listener: Resource) -> bytes:
    place = listener["address"]["socket_address"]
    place["address"] = "::" if ":" in place["address"] else "0.0.0.0"
    return protobuf.entry(listener)
