"""`windowbox lb`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from commands import busoptions
from commands.sandbox import output_option

if TYPE_CHECKING:
    from bus.messages import RunRecord
    from commands.balancers.query import Balancer, Snapshot
    from windowbox.models.refs import ObjectRef
    from windowbox.settings.settings import Settings

_PATIENCE = 15.0

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
    """All load balancers: address, ports, healthy backends, since when, and why one does not serve.

    BACKENDS: healthy endpoints and all endpoints, as Envoy counts them.
    """
    from commands.balancers import texts

    found = _query(busoptions.loaded(file, name), None)
    balancers = [one for one in found.balancers if cluster in (None, one.ref.cluster)]
    if output == "json":
        shown = {"loadBalancers": [one.as_json() for one in balancers], "edge": _edge(found)}
        click.echo(json.dumps(shown, indent=2))
    else:
        texts.print_list(balancers, found)


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
    from commands.balancers import query, texts

    settings, ref = busoptions.loaded(file, name), _ref(service, cluster)
    balancer, found, runs = asyncio.run(_shown(settings, ref))
    if output == "json":
        envoy = balancer.envoy
        events = [{"at": one.at.isoformat(), **one.event.model_dump()} for one in query.events(runs)]
        places = [place.model_dump() for place in envoy.places] if envoy else None
        shown = {**balancer.as_json(), "places": places, "events": events, "edge": _edge(found)}
        click.echo(json.dumps(shown, indent=2))
    else:
        texts.print_one(balancer, found, query.events(runs))


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
    """Refuse new connections; open ones may finish within ten minutes.

    The address and the status stay. The command sets an annotation of the Service, as `kubectl annotate` can:
    loadbalancer.windowbox/drain=true. UDP flows end at once.
    """
    from commands.balancers import draining

    settings, ref = busoptions.loaded(file, name), _ref(service, cluster)
    click.echo(asyncio.run(draining.drained(settings, ref, undo=undo, patience=_PATIENCE)))


def _ref(service: str, cluster: str) -> ObjectRef:
    from windowbox.models.refs import SERVICES, ObjectRef

    namespace, _, name = service.partition("/")
    if not namespace or not name or "/" in name:
        raise click.UsageError(f"{service!r} names no Service: write NAMESPACE/NAME")
    return ObjectRef(cluster, SERVICES.id, namespace, name)


def _query(settings: Settings, only: ObjectRef | None) -> Snapshot:
    from commands.balancers import query

    async def ask() -> Snapshot:
        async with busoptions.connected(settings, "lb") as bus:
            return await query.load_balancers(bus, settings.loadbalancer, only)

    return asyncio.run(ask())


async def _shown(settings: Settings, ref: ObjectRef) -> tuple[Balancer, Snapshot, list[RunRecord]]:
    from commands.balancers import query

    async with busoptions.connected(settings, "lb show") as bus:
        found = await query.load_balancers(bus, settings.loadbalancer, ref)
        return query.single(found, ref), found, await query.runs(bus, ref)


def _edge(found: Snapshot) -> object:
    return found.edge.model_dump(include={"envoys", "ranges"}) if found.edge else None
