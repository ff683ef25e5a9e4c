"""What has to be true of load balancers when all has been quiet for a while."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.chaos.edge_ending import EdgeEnding
from tests.chaos.services import Services
from tests.host.simulated import world
from windowbox.models.objects import Object
from workers.loadbalancer.service import servicestatus


@dataclass
class Ending(EdgeEnding):
    """Everything that can be looked at from outside, beside what its owner wants."""

    services: Services

    async def shown(self) -> list[str]:
        """Every Service has its address, and shows its ports; none is there that was deleted."""
        found, living = await self._found(), self.services.living
        problems = [f"{name} is missing" for name in living.keys() - found.keys()]
        problems += [f"{name} should be gone: {_told(found[name])}" for name in found.keys() - living.keys()]
        problems += [
            f"{name}: {_told(found[name])}, wanted {sorted(living[name].ports)}"
            for name in living.keys() & found.keys()
            if found[name].uid != living[name].uid or not is_complete(found[name])
        ]
        given = Counter(address for one in found.values() for address in servicestatus.addresses(one))
        return problems + [f"{address} is shown {n} times" for address, n in given.items() if n > 1]

    async def serve(self) -> list[str]:
        """Every port answers."""
        problems = []
        for name, one in (await self._found()).items():
            for address in servicestatus.addresses(one):
                for port in one.spec["ports"]:
                    said = await _answer(address, port["port"], port["protocol"])
                    if not said.startswith("simulated-"):
                        problems.append(f"{name}: {address}:{port['port']}/{port['protocol']} {said}")
        return problems

    async def _found(self) -> dict[str, Object]:
        return {one.name: one for one in await self.found()}


async def _answer(address: str, port: int, protocol: str) -> str:
    if protocol == "TCP":
        return await world.outcome(address, port)
    said = await world.asked(address, port, b"?")
    return said if isinstance(said, str) else said.decode().removeprefix("node=")


def is_complete(service: Object) -> bool:
    wanted = [{"port": port["port"], "protocol": port["protocol"]} for port in service.spec["ports"]]
    ingress: list[dict[str, Any]] = service.status.get("loadBalancer", {}).get("ingress") or []
    conditions = {c["type"]: c["status"] for c in service.status.get("conditions") or []}
    return (
        len(ingress) == 1
        and ingress[0].get("ports") == wanted
        and conditions.get("LoadBalancerServing") == "True"
    )


def _told(service: Object) -> str:
    return f"finalizers {service.finalizers}, deleting {service.deleting}, {service.status}"
