"""`windowbox make-secrets` and `verify`: Jobs of the chart, besides the processes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import secrets
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import click

from bus import permissions
from sandbox.servers import certificates
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.clients.nameserver import Nameserver
from windowbox.errors import Conflict, Unreachable
from windowbox.models.recordsets import RecordKey
from windowbox.models.refs import DNSRECORDS, SECRETS
from windowbox.settings.dnssettings import DnsSettings
from windowbox.telemetry import logs

logger = logging.getLogger(__name__)

_OWNER = "windowbox-make-secrets"
_ADDRESS = "192.0.2.1"
"""An address for documentation (RFC 5737): nothing answers there."""
_PAUSE = 0.2

Content = Mapping[str, bytes]

_KUBECONFIG = click.option("--kubeconfig", type=click.Path(path_type=Path), help="Default: the own cluster.")


@click.command("make-secrets")
@_KUBECONFIG
@click.option("--namespace", required=True, help="Namespace of the Secrets.")
@click.option("--passwords", "of_users", default="", help="Secret for the passwords of the bus's users.")
@click.option("--tls", default="", help="Secret for the certificate of the NATS servers.")
@click.option("--host", "hosts", multiple=True, help="A name of the NATS servers; repeatable.")
@click.option("--dns-key", default="", help="Secret for the TSIG key of the name server.")
def make_secrets(
    kubeconfig: Path | None, namespace: str, of_users: str, tls: str, hosts: tuple[str, ...], dns_key: str
) -> None:
    """Create the Secrets of an installation that do not exist yet; change none.

    They are generated in the cluster, so that releases and manifests contain no secrets.

    \b
    Example:
      windowbox make-secrets --namespace windowbox-system --passwords windowbox-bus
    """
    logs.configure("auto", "info")
    contents: dict[str, Callable[[], Content]] = {
        of_users: passwords,
        tls: lambda: server_certificate(hosts),
        dns_key: lambda: {"secret": base64.b64encode(secrets.token_bytes(32))},
    }

    async def create() -> None:
        async with kube.from_file(kubeconfig) as cluster:
            for name, content in contents.items():
                if not name:
                    continue
                if not await cluster.find(SECRETS, namespace, name):
                    labels = {"app.kubernetes.io/part-of": "windowbox"}
                    body = {
                        "apiVersion": "v1",
                        "kind": "Secret",
                        "metadata": {"name": name, "namespace": namespace, "labels": labels},
                        "type": "Opaque",
                        "data": {key: base64.b64encode(value).decode() for key, value in content().items()},
                    }
                    # Another Job may have created it in the meantime.
                    with contextlib.suppress(Conflict):
                        await cluster.create(SECRETS, namespace, body, owner=_OWNER)
                        logger.info("Secret %s/%s is created", namespace, name)
                        continue
                logger.info("Secret %s/%s exists", namespace, name)

    asyncio.run(create())


def passwords() -> Content:
    """A password for each user of the bus."""
    # A letter first: nats-server would read digits as a number.
    return {role: f"p{secrets.token_hex(20)}".encode() for role in permissions.PERMISSIONS}


def server_certificate(hosts: Sequence[str]) -> Content:
    """A certificate for the NATS servers, by an authority whose key is discarded."""
    with tempfile.TemporaryDirectory(prefix="windowbox-") as place:
        folder = Path(place)
        authority = certificates.authority(folder)
        server = certificates.server(authority, folder, "nats", hosts, peers=True)
        return {
            "ca.crt": authority.certificate.read_bytes(),
            "tls.crt": server.certificate.read_bytes(),
            "tls.key": server.key.read_bytes(),
        }


@click.command()
@_KUBECONFIG
@click.option("--namespace", required=True, help="Namespace of the record.")
@click.option("--zone", required=True, help="Zone of the record's name.")
@click.option("--server", required=True, metavar="HOST[:PORT]", help="Name server to query.")
@click.option("--patience", default=60.0, help="Seconds to wait for each step.")
def verify(kubeconfig: Path | None, namespace: str, zone: str, server: str, patience: float) -> None:
    """Create a DNSRecord, resolve its name, delete it. What `helm test` runs.

    \b
    Example:
      windowbox verify --namespace demo --zone local.gardener.cloud --server 127.0.0.1:53
    """

    async def show() -> None:
        async with kube.from_file(kubeconfig) as cluster:
            async for step in verified(cluster, namespace, zone, server, patience):
                click.echo(step)

    asyncio.run(show())


async def verified(kube: Kube, namespace: str, zone: str, server: str, patience: float) -> AsyncIterator[str]:
    """Take one record through a whole installation; yields each step that has succeeded."""
    name = f"verify-{secrets.token_hex(4)}"
    domain, what = f"{name}.{zone}", f"DNSRecord {namespace}/{name}"
    dns = Nameserver(DnsSettings.model_validate({"zones": [{"name": zone, "servers": [server]}]}))
    record = {
        "apiVersion": f"{DNSRECORDS.group}/{DNSRECORDS.version}",
        "kind": DNSRECORDS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "type": "local",
            "secretRef": {"name": "unused", "namespace": namespace},
            "name": domain,
            "recordType": "A",
            "values": [_ADDRESS],
        },
    }

    async def succeeded() -> bool:
        found = await kube.get(DNSRECORDS, namespace, name)
        return found.last_operation.get("state") == "Succeeded"

    async def answered() -> bool:
        found = await dns.read(zone, RecordKey(domain, "A"))
        return found is not None and found.values == (_ADDRESS,)

    async def unanswered() -> bool:
        return await dns.read(zone, RecordKey(domain, "A")) is None

    try:
        await kube.create(DNSRECORDS, namespace, record)
        yield f"{what} is created"
        await _until(succeeded, patience, f"{what} has not succeeded: does `windowbox work` run?")
        yield "it has succeeded"
        await _until(answered, patience, f"{server} does not answer for {domain}")
        yield f"{server} answers {domain} with {_ADDRESS}"
        await kube.delete(DNSRECORDS, namespace, name)
        await _until(unanswered, patience, f"{server} still answers for {domain}")
        yield "it is deleted, and its name is gone"
    finally:
        # Also after a failure: a record that is left behind would keep its name in the zone.
        await kube.remove(DNSRECORDS, namespace, name)
        await dns.aclose()


async def _until(holds: Callable[[], Awaitable[bool]], patience: float, otherwise: str) -> None:
    """Poll, because an installation is verified from outside, where no events arrive."""
    try:
        async with asyncio.timeout(patience):
            while not await holds():  # noqa: ASYNC110 -- the server announces nothing
                await asyncio.sleep(_PAUSE)
    except TimeoutError:
        raise Unreachable(f"{otherwise} (waited {patience:g} s)") from None
