"""An Envoy in a container for each Service, whose ports Docker publishes: works on every engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from windowbox.clients.docker import Container
from workers.loadbalancer.envoy import bootstrap, jsonfiles, protobuf
from workers.loadbalancer.envoy.attachments import Order
from workers.loadbalancer.envoy.docker import boxes
from workers.loadbalancer.envoy.docker.boxes import FOLDER
from workers.loadbalancer.envoy.docker.containerroutes import SCRIPT, ContainerRoutes
from workers.loadbalancer.envoy.docker.dockerenvoys import DockerEnvoy, DockerEnvoys, Files
from workers.loadbalancer.launcher import commandline

_ASKED = "asked-"
# The script exists only if there are routes. If it fails, Envoy still serves nodes that need no route.
_COMMAND = ("sh", "-c", f'[ ! -e /{SCRIPT} ] || sh /{SCRIPT}; exec "$@"', "sh", "envoy")


class DockerPerService(DockerEnvoys):
    """Docker cannot change the published ports of a container: other ports need another container.

    Envoy sees Docker's address instead of most clients' own, so it cannot enforce source ranges.
    """

    fixed_ports = True

    async def kept(self, name: str) -> Mapping[str, bytes]:
        return asked(await super().kept(name))

    async def start(self, order: Order) -> DockerEnvoy:
        body = boxes.envoy(self.household, order, command=[*_COMMAND, *commandline.arguments(FOLDER)])
        bindings: dict[str, list[dict[str, str]]] = {}
        for port in order.published:
            binding = {"HostIp": port.address, "HostPort": str(port.port)}
            bindings.setdefault(f"{port.port}/{port.protocol.lower()}", []).append(binding)
        # Engines before 29 start a container whose ports are bound but not exposed, and publish none of them.
        body["ExposedPorts"] = {port: {} for port in bindings}
        body["HostConfig"] |= {
            "NetworkMode": self._network,
            "PortBindings": bindings,
            "CapAdd": ["NET_ADMIN"],
        }
        inner = replace(order, files=inward(order.files))
        return await self._launch(inner, boxes.service_box(order.name), body)

    async def route(self, container: Container, routes: Mapping[str, str]) -> None:
        await ContainerRoutes(self.engine, container.id).set("", routes)

    def _envoy(self, container: Container) -> DockerEnvoy:
        envoy = super()._envoy(container)
        return replace(envoy, files=Inward(envoy.files))


@dataclass(frozen=True)
class Inward:
    """Files whose listeners are on all addresses of the container: Docker forwards to its own address.

    The original listeners are kept beside them, and are what `read` returns.
    """

    files: Files

    async def write(self, files: Mapping[str, bytes]) -> None:
        await self.files.write(inward(files))

    async def read(self, file: str) -> bytes | None:
        listeners = (bootstrap.LISTENERS, jsonfiles.LISTENERS)
        return await self.files.read(_ASKED + file if file in listeners else file)

    async def ask(self, path: str, *, post: bool) -> bytes:
        return await self.files.ask(path, post=post)

    def remove(self) -> None:
        self.files.remove()


def inward(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files for Envoy in the container, and the original listeners."""
    made = dict(files)
    if (listeners := made.get(bootstrap.LISTENERS)) is not None:
        entries = b""
        for entry in protobuf.entries(listeners):
            listener = protobuf.resource(entry)
            place = listener["address"]["socket_address"]
            place["address"] = "::" if ":" in place["address"] else "0.0.0.0"
            entries += protobuf.entry(listener)
        made[bootstrap.LISTENERS] = protobuf.response(protobuf.version(listeners), entries)
        made[_ASKED + bootstrap.LISTENERS] = listeners
    return made


def asked(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files that `inward` was given."""
    return {name: files.get(_ASKED + name, files[name]) for name in files if not name.startswith(_ASKED)}
