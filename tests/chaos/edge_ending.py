"""What has to be true of the edge and of load balancers when all has been quiet for a while."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from bus import streams, subjects
from bus.leases import liveness
from bus.leases.leases import HOLDER
from bus.transport import consumers
from bus.transport.connection import Bus, Stored
from sandbox import ownership
from sandbox.processes import ProcessId
from sandbox.supervisor import Supervisor
from tests.chaos.breaking import Envoys
from tests.chaos.services import Services
from tests.host.simulated import world
from windowbox.clients.kubernetes.kube import Kube
from windowbox.models.objects import Object
from windowbox.models.refs import NODES, RUNTIME, SERVICES, ObjectRef
from workers.loadbalancer import edgestate
from workers.loadbalancer.edge import trafficnodes
from workers.loadbalancer.edge.trafficnodes import Backend
from workers.loadbalancer.envoy import admin
from workers.loadbalancer.envoy.process import Process
from workers.loadbalancer.ipam import entries
from workers.loadbalancer.service import servicestatus


@dataclass
class EdgeEnding:
    """Everything that can be looked at from outside."""

    sandbox: Supervisor
    kube: Kube
    bus: Bus
    envoys: Envoys

    async def envoy(self) -> list[str]:
        """There is one Envoy, with these listeners and these nodes behind them, and no others."""
        running = await self.envoys.found()
        marked = ownership.marked().items()
        processes = [p.pid for p, mark in marked if mark == self.sandbox.state.mark and _is_envoy(p)]
        if [one.pid for one in running] != processes or len(processes) != 1:
            return [f"Envoys {[one.pid for one in running]} are known, and {processes} run"]
        wanted = self._listeners(await self.found(), await self._backends())
        active = await _listeners(running[0])
        health = await admin.health(running[0])
        found = {name: {(e.address, e.port) for e in ends} for name, ends in health.items()}
        return [
            *(f"listener {name} is there: {name in active}" for name in active ^ wanted.keys()),
            *(f"cluster {name} is there: {name in found}" for name in found.keys() ^ wanted.keys()),
            *(
                f"{name} leads to {sorted(found[name])}, not {sorted(wanted[name])}"
                for name in found.keys() & wanted.keys()
                if found[name] != wanted[name]
            ),
        ]

    async def entries(self) -> list[str]:
        """The bus knows whose the addresses are and what the edge carries, and nothing else."""
        found = await self.found()
        wanted = {(address, one.uid) for one in found for address in servicestatus.addresses(one)}
        book, waiting = set(), []
        async for entry in self._entries(streams.ADDRESSES):
            key = subjects.without(f"$KV.{streams.ADDRESSES}", entry.subject)
            if address := subjects.address(key):
                book |= {(address, holder.uid) for holder in entries.read(entry.data).holders}
            elif subjects.waiting(key):
                waiting.append(f"{key} waits for an address")
        testified = subjects.entry(streams.EDGES, edgestate.TESTIFIED)
        carried = {e.subject async for e in self._entries(streams.EDGES) if e.subject != testified}
        refs = [ObjectRef(RUNTIME, SERVICES.id, one.namespace, one.name) for one in found]
        edges = {subjects.entry(streams.EDGES, subjects.key(ref)) for ref in refs}
        return [
            *waiting,
            *(f"the address book differs in {one}" for one in book ^ wanted),
            *(f"what the edge says differs in {one}" for one in carried ^ edges),
        ]

    async def owners(self) -> list[str]:
        """Whoever holds a lease is alive; and somebody owns the edge."""
        alive = {str(child.pid) for child in self.sandbox.state.children.values()}
        found = [e async for e in self._entries(streams.LEASES)]
        lives = {e.subject for e in found if liveness.is_life(e.subject)}
        kept = lives | {e.subject for e in found if liveness.subject(e.headers.get(HOLDER, "")) in lives}
        held = {e.subject: e.data.decode() for e in found if e.subject in kept}
        problems = [f"{s} is held by {o}" for s, o in held.items() if o.rpartition("/")[2] not in alive]
        owned = subjects.entry(streams.LEASES, "edge") in held
        return problems + ([] if owned else ["nobody owns the edge"])

    async def routes(self) -> list[str]:
        """No node here needs a route."""
        record = self.sandbox.folder / "edge" / "edge" / "routes.json"
        routes = orjson.loads(record.read_bytes()) if record.exists() else {}
        return [f"a route is left: {route}" for route in routes]

    async def found(self) -> list[Object]:
        """All load balancers of the cluster."""
        page = await self.kube.page(SERVICES, limit=5000)
        assert not page.more
        return [one for one in map(Object, page.items) if one.spec.get("type") == "LoadBalancer"]

    async def _backends(self) -> list[Backend]:
        found = (trafficnodes.backend(Object(raw)) for raw in (await self.kube.page(NODES)).items)
        return [one for one in found if isinstance(one, Backend)]

    def _listeners(
        self, found: Sequence[Object], backends: Sequence[Backend]
    ) -> dict[str, set[tuple[str, int]]]:
        return {
            f"{port['protocol'].lower()}_{address}_{port['port']}": {
                (node.addresses["IPv4"], port["nodePort"]) for node in backends
            }
            for one in found
            for address in servicestatus.addresses(one)
            for port in one.spec["ports"]
        }

    async def _entries(self, bucket: str) -> AsyncIterator[Stored]:
        async for stored in consumers.snapshot(self.bus, f"KV_{bucket}", [subjects.entry(bucket, ">")]):
            if "KV-Operation" not in stored.headers and "Nats-Marker-Reason" not in stored.headers:
                yield stored


async def _listeners(envoy: Process) -> set[str]:
    answer = orjson.loads(await envoy.ask("/listeners?format=json"))
    return {one["name"] for one in answer.get("listener_statuses", [])}


def _is_envoy(process: ProcessId) -> bool:
    return "envoy" in ownership.name_of(process)


@dataclass
class Ending(EdgeEnding):
    """Everything that can be looked at from outside, beside what its owner wants."""

    services: Services

    async def shown(self) -> list[str]:
        """Every Service has its address, and shows its ports; none is there that was deleted."""
        found, living = await self._found(), self.services.living
        problems = [f"{name} is missing" for name in living.keys() - found.keys()]
        problems += [
            f"{name} should be gone: {_described(found[name])}" for name in found.keys() - living.keys()
        ]
        problems += [
            f"{name}: {_described(found[name])}, wanted {sorted(living[name].ports)}"
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


def _described(service: Object) -> str:
    return f"finalizers {service.finalizers}, deleting {service.deleting}, {service.status}"
