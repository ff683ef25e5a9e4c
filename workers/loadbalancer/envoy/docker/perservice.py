"""An Envoy in a container for each Service, whose ports Docker publishes: works on every engine."""

from __future__ import annotations

from collections.abc import Mapping

from windowbox.clients.docker import Container
from workers.loadbalancer.envoy.attachments import Order
from workers.loadbalancer.envoy.docker import boxes
from workers.loadbalancer.envoy.docker.boxes import FOLDER
from workers.loadbalancer.envoy.docker.containerroutes import SCRIPT, ContainerRoutes
from workers.loadbalancer.envoy.docker.dockerenvoys import DockerEnvoy, DockerEnvoys
from workers.loadbalancer.launcher import commandline

# The script exists only if there are routes. If it fails, Envoy still serves nodes that need no route.
_COMMAND = ("sh", "-c", f'[ ! -e /{SCRIPT} ] || sh /{SCRIPT}; exec "$@"', "sh", "envoy")


class DockerPerService(DockerEnvoys):
    """Docker cannot change the published ports of a container: other ports need another container.

    Listeners are at all addresses of the container: Docker forwards to its own. Envoy sees Docker's address
    instead of most clients' own, so it cannot enforce source ranges.
    """

    fixed_ports = True

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
        return await self._launch(order, boxes.service_box(order.name), body)

    async def route(self, container: Container, routes: Mapping[str, str]) -> None:
        await ContainerRoutes(self.engine, container.id).set("", routes)
