"""`windowbox lb`: load balancers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import click

from bus import streams, subjects
from bus.clusters.clusters import clusters
from bus.clusters.registry import Registry
from bus.messages import RunRecord
from bus.transport import consumers
from commands import busoptions
from commands.balancers import balancerquery, balancertexts
from commands.balancers.balancerquery import Snapshot
from commands.options import output_option
from windowbox.clients.kubernetes import kube
from windowbox.errors import Unreachable
from windowbox.models.refs import SERVICES, ObjectRef
from windowbox.settings.settings import Settings
from workers.loadbalancer.edgestate import EdgeState
from workers.loadbalancer.spec import options
from workers.loadbalancer.spec.demands import demand_in

_PATIENCE = 15.0
"""Seconds until the edge has drained a load balancer."""

_cluster = click.option("--cluster", default="runtime", show_default=True, help="In which cluster.")


@click.group(
    epilog="\b\nExamples:\n"
    "  windowbox lb list                   all of them, and why one does not serve\n"
    "  windowbox lb show shop/web          one of them, with each endpoint and its traffic\n"
    "  windowbox lb drain shop/web         no new connections, until --undo"
)
def lb() -> None:
    """Load balancers: Services of type LoadBalancer, their addresses and their Envoy."""


@lb.command(
    "list",
    epilog="\b\nExamples:\n"
    "  windowbox lb list\n"
    "  windowbox lb list --cluster runtime\n"
    "  windowbox lb list -o json | jq '.loadBalancers[] | select(.state != \"serving\")'\n"
    + busoptions.FINDING,
    short_help="List load balancers.",
)
@click.option("--cluster", help="Only those of this cluster.")
@output_option
@busoptions.settings_options
def list_(cluster: str | None, output: str, file: Path | None, name: str | None) -> None:
    """All load balancers: address, ports, healthy backends, age of the state, and why one does not serve.

    BACKENDS: healthy endpoints and all endpoints, as Envoy counts them.
    """
    found, _ = asyncio.run(_query(busoptions.loaded(file, name)))
    balancers = [one for one in found.balancers if cluster in (None, one.ref.cluster)]
    if output == "json":
        shown = {"loadBalancers": [one.as_json() for one in balancers], "edge": _edge(found)}
        click.echo(json.dumps(shown, indent=2))
    else:
        balancertexts.print_list(balancers, found)


@lb.command(
    epilog="\b\nExamples:\n"
    "  windowbox lb show shop/web\n"
    "  windowbox lb show shop/web --cluster shoot--garden--one -o json\n" + busoptions.FINDING,
    short_help="Show one load balancer.",
)
@click.argument("service", metavar="NAMESPACE/NAME")
@_cluster
@output_option
@busoptions.settings_options
def show(service: str, cluster: str, output: str, file: Path | None, name: str | None) -> None:
    """One load balancer: its ports, endpoints and their health in Envoy, its traffic, and its Events.

    Envoy counts connections and bytes since its start.
    """
    settings, ref = busoptions.loaded(file, name), _ref(service, cluster)
    found, runs = asyncio.run(_query(settings, ref))
    balancer, events = found.balancers[0], balancerquery.events(runs)
    if output == "json":
        envoy = balancer.envoy
        dumped = [{"at": one.at.isoformat(), **one.event.model_dump()} for one in events]
        places = [place.model_dump() for place in envoy.places] if envoy else None
        shown = {**balancer.as_json(), "places": places, "events": dumped, "edge": _edge(found)}
        click.echo(json.dumps(shown, indent=2))
    else:
        balancertexts.print_one(balancer, found, events)


@lb.command(
    epilog="\b\nExamples:\n  windowbox lb drain shop/web\n  windowbox lb drain shop/web --undo\n"
    + busoptions.FINDING,
    short_help="Drain a load balancer.",
)
@click.argument("service", metavar="NAMESPACE/NAME")
@click.option("--undo", is_flag=True, help="Accept new connections again.")
@_cluster
@busoptions.settings_options
def drain(service: str, undo: bool, cluster: str, file: Path | None, name: str | None) -> None:
    """Refuse new connections; open ones may finish within ten minutes. UDP flows end at once.

    The address and the status stay. The command sets the annotation loadbalancer.windowbox/drain=true of the
    Service, and waits until the edge has applied it.
    """
    settings, ref = busoptions.loaded(file, name), _ref(service, cluster)
    click.echo(asyncio.run(drained(settings, ref, undo=undo)))


async def drained(settings: Settings, ref: ObjectRef, *, undo: bool) -> str:
    """Drain a load balancer, or undo that, and wait for the edge. Returns the result in a sentence."""
    async with busoptions.connected(settings, "lb drain") as bus:
        balancerquery.single(await balancerquery.load_balancers(bus, settings.loadbalancer, ref), ref)
        registry = Registry(bus)
        async with (
            kube.from_file(settings.cluster.kubeconfig, settings.cluster.context) as runtime,
            clusters(runtime, registry, settings.egress, settings.cluster.files) as opened,
            busoptions.following(registry),
        ):
            # The Service may be in a member cluster.
            api = await opened.get(ref.cluster)
            patch = {"metadata": {"annotations": {options.DRAIN: None if undo else "true"}}}
            patched = await api.merge(SERVICES, ref.namespace, ref.name, patch)
        demand = demand_in(ref.cluster, patched, settings.loadbalancer)
        bucket = streams.EDGES
        following = consumers.follow(bus, f"KV_{bucket}", [subjects.entry(bucket, subjects.key(ref))])
        try:
            async with asyncio.timeout(_PATIENCE), contextlib.aclosing(following) as entries:  # type: ignore[type-var]
                async for stored in entries:
                    state = EdgeState.model_validate_json(stored.data) if stored and stored.data else None
                    if state is not None and balancerquery.drained(demand, state) == demand.drained:
                        break
        except TimeoutError as error:
            raise Unreachable(
                f"{options.DRAIN} is set as asked, but no edge has acted on it within {_PATIENCE:g} s: "
                f"`windowbox lb show {ref.namespace}/{ref.name}` shows more"
            ) from error
        found = await balancerquery.load_balancers(bus, settings.loadbalancer, ref)
    balancer = balancerquery.single(found, ref)
    name = f"{ref.namespace}/{ref.name}"
    if undo:
        where, ports = " and ".join(balancer.addresses), ", ".join(balancer.demand.places)
        return f"{name} takes connections again: {where}, {ports}."
    left = found.draining_connections(balancer)
    open_ = f"{left} open connections continue" if left != 1 else "1 open connection continues"
    return (
        f"{name} takes no new connections; {open_}, for ten minutes at most. "
        "Its address stays; --undo lets clients in again."
    )


def _ref(service: str, cluster: str) -> ObjectRef:
    namespace, _, name = service.partition("/")
    if not namespace or not name or "/" in name:
        raise click.UsageError(f"{service!r} names no Service: write NAMESPACE/NAME")
    return ObjectRef(cluster, SERVICES.id, namespace, name)


async def _query(settings: Settings, only: ObjectRef | None = None) -> tuple[Snapshot, list[RunRecord]]:
    """All load balancers; or one, which has to exist, and its runs."""
    async with busoptions.connected(settings, "lb") as bus:
        found = await balancerquery.load_balancers(bus, settings.loadbalancer, only)
        if only is None:
            return found, []
        balancerquery.single(found, only)
        return found, await balancerquery.runs(bus, only)


def _edge(found: Snapshot) -> object:
    return found.edge.model_dump(include={"hosts", "envoys", "ranges"}) if found.edge else None
