"""Envoys in containers that have the host's network: addresses are aliases on its loopback."""

from __future__ import annotations

from collections.abc import Mapping

from windowbox.clients.docker import Container
from windowbox.errors import Refused
from workers.loadbalancer.envoy import hostnetwork
from workers.loadbalancer.envoy.attachments import Order
from workers.loadbalancer.envoy.docker import boxes
from workers.loadbalancer.envoy.docker.dockerenvoys import DockerEnvoy, DockerEnvoys


class DockerHost(DockerEnvoys):
    """Envoy sees the client's own address, and its ports can change while it runs."""

    async def beside_us(self) -> bool:
        return await self.on_this_host()

    async def start(self, order: Order) -> DockerEnvoy:
        body = boxes.envoy(self.household, order)
        body["HostConfig"]["NetworkMode"] = "host"
        if await self.on_this_host():
            hostnetwork.keep_waiting_connections()
        return await self._launch(order, boxes.shared_box(self.household, order.name, order.generation), body)

    async def route(self, container: Container, routes: Mapping[str, str]) -> None:
        if self._folder and await self.on_this_host():
            name = boxes.edge_of(container) or ""
            await hostnetwork.route(self._folder / name / "routes.json", routes)
        elif routes:
            raise Refused(
                f"routes to {', '.join(routes)}: the host's own table is out of reach "
                "without loadbalancer.folder; set it, or loadbalancer.attachment to docker-routed"
            )
