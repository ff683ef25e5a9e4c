"""make-secrets, verify: what the chart runs besides processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

_KUBECONFIG = click.option("--kubeconfig", type=click.Path(path_type=Path), help="Default: the own cluster.")


@click.command("make-secrets")
@_KUBECONFIG
@click.option("--namespace", required=True, help="Where the Secrets are.")
@click.option("--passwords", default="", help="The Secret with the passwords of the bus's users.")
@click.option("--tls", default="", help="The Secret with the certificate of the NATS servers.")
@click.option("--host", "hosts", multiple=True, help="A name of the NATS servers; may be given again.")
@click.option("--dns-key", default="", help="The Secret with the TSIG key of the name server.")
def make_secrets(
    kubeconfig: Path | None, namespace: str, passwords: str, tls: str, hosts: tuple[str, ...], dns_key: str
) -> None:
    """Make the Secrets of an installation that are not there yet, and change none.

    \b
    Example:
      windowbox make-secrets --namespace windowbox-system --passwords windowbox-bus
    """
    from commands import secrets
    from windowbox.clients.kubernetes import kube
    from windowbox.telemetry import logs

    logs.configure("auto", "info")
    wanted = secrets.Wanted(passwords, tls, hosts, dns_key)

    async def act() -> None:
        async with kube.from_file(kubeconfig) as cluster:
            await secrets.make(cluster, namespace, wanted)

    asyncio.run(act())


@click.command()
@_KUBECONFIG
@click.option("--namespace", required=True, help="Where the record is made.")
@click.option("--zone", required=True, help="The zone it is in.")
@click.option("--server", required=True, metavar="HOST[:PORT]", help="The name server to ask.")
@click.option("--patience", default=60.0, help="Seconds to wait for each step.")
def verify(kubeconfig: Path | None, namespace: str, zone: str, server: str, patience: float) -> None:
    """Make a DNSRecord, resolve its name, delete it. What `helm test` runs.

    \b
    Example:
      windowbox verify --namespace demo --zone local.gardener.cloud --server 127.0.0.1:53
    """
    from commands import verifying
    from windowbox.clients.kubernetes import kube

    async def act() -> None:
        async with kube.from_file(kubeconfig) as cluster:
            async for step in verifying.steps(cluster, namespace, zone, server, patience):
                click.echo(step)

    asyncio.run(act())
