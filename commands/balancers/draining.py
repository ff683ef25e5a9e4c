"""`windowbox lb drain`: set the annotation, and wait until the edge has applied it."""

from __future__ import annotations

import asyncio
import contextlib

from bus import streams, subjects
from bus.clusters.clusters import clusters
from bus.clusters.registry import Registry
from bus.transport import consumers
from commands import busoptions
from commands.balancers import balancerquery
from windowbox.clients.kubernetes import kube
from windowbox.errors import Unreachable
from windowbox.models.objects import Object
from windowbox.models.refs import SERVICES, ObjectRef
from windowbox.settings.settings import Settings
from workers.loadbalancer.edgestate import EdgeState
from workers.loadbalancer.spec import options
from workers.loadbalancer.spec.demands import demand_in


async def drained(settings: Settings, ref: ObjectRef, *, undo: bool, patience: float) -> str:
    """Drain a load balancer, or undo that, and wait for the edge. Returns the result in a sentence."""
    async with busoptions.connected(settings, "lb drain") as bus:
        balancerquery.single(await balancerquery.load_balancers(bus, settings.loadbalancer, ref), ref)
        registry = Registry(bus)
        patched = await _annotated(settings, registry, ref, None if undo else "true")
        demand = demand_in(ref.cluster, patched, settings.loadbalancer)
        bucket = streams.EDGES
        following = consumers.follow(bus, f"KV_{bucket}", [subjects.entry(bucket, subjects.key(ref))])
        try:
            async with asyncio.timeout(patience), contextlib.aclosing(following) as entries:  # type: ignore[type-var]
                async for stored in entries:
                    state = EdgeState.model_validate_json(stored.data) if stored and stored.data else None
                    if state is not None and balancerquery.drained(demand, state) == demand.drained:
                        break
        except TimeoutError as error:
            raise Unreachable(
                f"{options.DRAIN} is set as asked, but no edge has acted on it within {patience:g} s: "
                f"`windowbox lb show {ref.namespace}/{ref.name}` shows more"
            ) from error
        found = await balancerquery.load_balancers(bus, settings.loadbalancer, ref)
    balancer = balancerquery.single(found, ref)
    name = f"{ref.namespace}/{ref.name}"
    if undo:
        where, ports = " and ".join(balancer.addresses), ", ".join(balancer.demand.places)
        return f"{name} takes connections again: {where}, {ports}."
    left = found.draining_connections(balancer)
    open_ = f"{left} open connections go on" if left != 1 else "1 open connection goes on"
    return (
        f"{name} takes no new connections; {open_}, for ten minutes at most. "
        "Its address stays; --undo lets clients in again."
    )


async def _annotated(settings: Settings, registry: Registry, ref: ObjectRef, value: str | None) -> Object:
    """Set or remove the annotation, in the runtime cluster or a member cluster."""
    async with (
        kube.from_file(settings.cluster.kubeconfig, settings.cluster.context) as runtime,
        clusters(runtime, registry, settings.egress, settings.cluster.files) as opened,
    ):
        following = asyncio.create_task(registry.run(), name="registry")
        try:
            await registry.complete.wait()
            api = await opened.get(ref.cluster)
            patch = {"metadata": {"annotations": {options.DRAIN: value}}}
            return await api.merge(SERVICES, ref.namespace, ref.name, patch)
        finally:
            following.cancel()
            await asyncio.wait([following])
