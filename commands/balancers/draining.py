"""`windowbox lb drain`: set the annotation, and wait until the edge has applied it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from bus import streams, subjects
from bus.clusters.clusters import clusters
from bus.clusters.registry import Registry
from bus.transport import consumers
from bus.transport.connection import Bus
from commands import busoptions
from commands.balancers import query
from commands.balancers.query import Balancer
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Unreachable
from windowbox.models.refs import SERVICES, ObjectRef
from windowbox.settings.settings import Settings
from workers.loadbalancer.edgestate import EdgeState
from workers.loadbalancer.spec import options
from workers.loadbalancer.spec.demands import Demand, demand_in


async def drained(settings: Settings, ref: ObjectRef, *, undo: bool, patience: float) -> str:
    """Drain it, or with `undo` end the draining. Returns the result in a sentence."""
    async with busoptions.connected(settings, "lb drain") as bus, _api(settings, bus, ref.cluster) as api:
        found = await query.load_balancers(bus, settings.loadbalancer, ref)
        query.single(found, ref)
        value = None if undo else "true"
        patched = await api.merge(
            SERVICES, ref.namespace, ref.name, {"metadata": {"annotations": {options.DRAIN: value}}}
        )
        demand = demand_in(ref.cluster, patched, settings.loadbalancer)
        try:
            async with asyncio.timeout(patience):
                await _done(bus, ref, demand)
        except TimeoutError as error:
            raise Unreachable(
                f"{options.DRAIN} is set as asked, but no edge has acted on it within {patience:g} s: "
                f"`windowbox lb show {ref.namespace}/{ref.name}` tells more"
            ) from error
        found = await query.load_balancers(bus, settings.loadbalancer, ref)
        balancer = query.single(found, ref)
        return _served(balancer) if undo else _drained(balancer, found.draining_connections(balancer))


async def _done(bus: Bus, ref: ObjectRef, demand: Demand) -> None:
    """Wait until the edge serves or drains it as demanded."""
    bucket = streams.EDGES
    following = consumers.follow(bus, f"KV_{bucket}", [subjects.entry(bucket, subjects.key(ref))])
    async with contextlib.aclosing(following) as entries:  # type: ignore[type-var]
        async for stored in entries:
            state = EdgeState.model_validate_json(stored.data) if stored and stored.data else None
            if state is not None and query.drained(demand, state) == demand.drained:
                return


def _drained(balancer: Balancer, left: int) -> str:
    open_ = f"{left} open connections go on" if left != 1 else "1 open connection goes on"
    return (
        f"{balancer.ref.namespace}/{balancer.ref.name} takes no new connections; {open_}, for ten minutes at "
        "most. "
        "Its address stays; --undo lets clients in again."
    )


def _served(balancer: Balancer) -> str:
    where = " and ".join(balancer.addresses)
    ports = ", ".join(balancer.demand.places)
    return f"{balancer.ref.namespace}/{balancer.ref.name} takes connections again: {where}, {ports}."


@contextlib.asynccontextmanager
async def _api(settings: Settings, bus: Bus, cluster: str) -> AsyncIterator[Kube]:
    """A client of a member cluster."""
    registry = Registry(bus)
    async with (
        kube.from_file(settings.cluster.kubeconfig, settings.cluster.context) as runtime,
        clusters(runtime, registry, settings.egress, settings.cluster.files) as opened,
    ):
        following = asyncio.create_task(registry.run(), name="registry")
        try:
            await registry.complete.wait()
            yield await opened.get(cluster)
        finally:
            following.cancel()
            await asyncio.wait([following])
