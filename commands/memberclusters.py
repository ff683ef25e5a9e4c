"""`windowbox clusters`: the member clusters."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import click

from bus.clusters.registry import MachinePlace, Member, Registry
from bus.leases import presence
from bus.transport.connection import Bus
from commands import busoptions
from commands.options import output_option
from windowbox.kinds import RESOURCES
from windowbox.models.refs import NODES, RUNTIME, SERVICES, SecretKey
from windowbox.settings.settings import Settings


@click.group(epilog="\b\nExample:\n  windowbox clusters add garden --secret garden/garden-kubeconfig")
def clusters() -> None:
    """Member clusters, which windowbox serves besides its own; they join and leave at run time.

    The cluster of the settings is called `runtime`. It is always served, and is not listed. Watchers mirror a
    cluster from its joining until it leaves.
    """


@clusters.command(
    epilog="\b\nExamples:\n"
    "  windowbox clusters add garden --secret garden/garden-kubeconfig\n"
    "  windowbox clusters add lab --kubeconfig /etc/windowbox/lab.kubeconfig\n"
    "  windowbox clusters add lab --kubeconfig lab.yaml --kind dnsrecords.extensions.gardener.cloud\n"
    "  windowbox clusters add shoot--a --secret shoot--a/kubeconfig --machines shoot--a\n"
    + busoptions.FINDING,
    short_help="Add a cluster.",
)
@click.argument("id")
@click.option(
    "--secret", metavar="NAMESPACE/NAME", help="A Secret of the runtime cluster that holds a kubeconfig."
)
@click.option("--key", default="kubeconfig", show_default=True, help="With --secret: its key.")
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path), metavar="FILE",
    help="A file that every process can read at this path, and lists in its setting cluster.files.",
)  # fmt: skip
@click.option(
    "--kind", "--kinds", "kinds", multiple=True, metavar="KIND",
    help="Kind to watch there; repeatable. Default: services and nodes.",
)  # fmt: skip
@click.option(
    "--machines", metavar="NAMESPACE", help="Namespace of the runtime cluster with the Pods of its machines."
)
@busoptions.settings_options
def add(
    id: str, secret: str | None, key: str, kubeconfig: Path | None, kinds: tuple[str, ...],
    machines: str | None, file: Path | None, name: str | None,
) -> None:  # fmt: skip
    """Add the cluster ID, or change its credentials.

    The bus only holds the place of the credentials, never the credentials. Without --kind, windowbox watches
    what load balancers need. A cluster joins by itself if the Namespace of its control plane has the
    annotation cluster.windowbox/kubeconfig: SECRET[/KEY].
    """
    if id == RUNTIME:
        raise click.UsageError(f"{RUNTIME!r} is the cluster of the settings: it is always served")
    for kind in kinds:
        if kind not in RESOURCES:
            raise click.UsageError(f"no kind {kind!r}; there are: {', '.join(sorted(RESOURCES))}")
    if (secret is None) == (kubeconfig is None):
        raise click.UsageError("say where the credentials are: either --secret or --kubeconfig")
    where = None
    if secret is not None:
        namespace, _, of = secret.partition("/")
        if not namespace or not of:
            raise click.UsageError(f"{secret!r} names no Secret: write NAMESPACE/NAME")
        where = SecretKey(namespace=namespace, name=of, key=key)
    member = Member(
        id=id,
        secret=where,
        file=str(kubeconfig.absolute()) if kubeconfig else None,
        kinds=kinds or (SERVICES.id, NODES.id),
        machines=MachinePlace(namespace=machines) if machines else None,
    )

    async def join() -> None:
        async with _registry(busoptions.loaded(file, name)) as (_, registry):
            await registry.join(member)

    asyncio.run(join())
    if member.file:
        click.echo(f"Every process needs the setting cluster.files: {{{id}: {member.file}}}", err=True)
    click.echo(f"{id} has joined. `windowbox clusters list` shows the state of its watches.")


@clusters.command(
    epilog="\b\nExample:\n  windowbox clusters remove lab\n" + busoptions.FINDING,
    short_help="Remove a cluster.",
)
@click.argument("id")
@busoptions.settings_options
def remove(id: str, file: Path | None, name: str | None) -> None:
    """Remove the cluster ID. Its objects stay as they are; windowbox stops watching them."""

    async def leave() -> None:
        async with _registry(busoptions.loaded(file, name)) as (_, registry):
            await registry.leave(id)

    asyncio.run(leave())
    click.echo(f"{id} has left.")


@clusters.command(
    "list",
    epilog="\b\nExample:\n  windowbox clusters list -o json\n" + busoptions.FINDING,
    short_help="List clusters.",
)
@output_option
@busoptions.settings_options
def list_(output: str, file: Path | None, name: str | None) -> None:
    """List clusters with their credentials and the state of their watches."""
    found = asyncio.run(listed(busoptions.loaded(file, name)))
    if output == "json":
        click.echo(json.dumps(found, indent=2))
    elif not found:
        click.echo("There are no member clusters. `windowbox clusters add --help` shows how to join.")
    for cluster in found if output == "text" else ():
        click.echo(f"{cluster['id']:<20} {cluster['credentials']}")
        if cluster["asleep"]:
            click.echo("  hibernated: its addresses stay reserved")
        if cluster["machines"]:
            click.echo(f"  machines: {cluster['machines']}")
        for kind, state in cluster["watches"].items():
            click.echo(f"  {kind}: {state}")


async def listed(settings: Settings) -> list[dict[str, Any]]:
    """The member clusters, with the state of each watch as the watchers report it."""
    async with _registry(settings) as (bus, registry), busoptions.following(registry):
        present = await presence.processes(bus)
    # Watchers name a watch by CLUSTER/KIND.
    watches: dict[str, dict[str, str]] = {}
    for place, state in [pair for process in present for pair in process.get("watches", {}).items()]:
        cluster, _, kind = place.partition("/")
        states = watches.setdefault(cluster, {})
        # Of several watchers one holds the lease, and reports the state; the others stand by.
        if states.get(kind, "standing by") == "standing by":
            states[kind] = state
    return [
        {
            "id": id,
            "credentials": f"Secret {secret.namespace}/{secret.name}, key {secret.key}"
            if (secret := member.secret)
            else f"file {member.file}",
            "kinds": list(member.kinds),
            "machines": member.machines and f"{member.machines.cluster}/{member.machines.namespace}",
            "joined by": member.origin,
            "asleep": member.asleep,
            "watches": watches.get(id, {}),
        }
        for id, member in sorted(registry.members.items())
    ]


@contextlib.asynccontextmanager
async def _registry(settings: Settings) -> AsyncIterator[tuple[Bus, Registry]]:
    async with busoptions.connected(settings, "clusters") as bus:
        yield bus, Registry(bus)
