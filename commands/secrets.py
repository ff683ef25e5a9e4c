"""The Secrets of an installation: made once, in the cluster, so that releases and manifests hold none."""

from __future__ import annotations

import base64
import logging
import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bus import permissions
from sandbox.servers import certificates
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Conflict
from windowbox.models.refs import SECRETS

logger = logging.getLogger(__name__)

_OWNER = "windowbox-make-secrets"
Content = Mapping[str, bytes]


@dataclass(frozen=True)
class Wanted:
    """The names of the Secrets to make; those without a name are not made."""

    passwords: str = ""
    tls: str = ""
    hosts: Sequence[str] = ()
    """The names of the NATS servers, for their certificate."""
    dns_key: str = ""


async def make(kube: Kube, namespace: str, wanted: Wanted) -> None:
    """Create the Secrets that are not there. What is there stays."""
    contents: dict[str, Callable[[], Content]] = {
        wanted.passwords: passwords,
        wanted.tls: lambda: server_certificate(wanted.hosts),
        wanted.dns_key: lambda: {"secret": base64.b64encode(secrets.token_bytes(32))},
    }
    for name, content in contents.items():
        if name:
            await _make(kube, namespace, name, content)


def passwords() -> Content:
    """One for each user of the bus. Letters first: nats-server reads digits as a number."""
    return {role: f"p{secrets.token_hex(20)}".encode() for role in permissions.PERMISSIONS}


def server_certificate(hosts: Sequence[str]) -> Content:
    """For the NATS servers, by an authority whose key is not kept."""
    with tempfile.TemporaryDirectory(prefix="windowbox-") as place:
        folder = Path(place)
        authority = certificates.authority(folder)
        server = certificates.server(authority, folder, "nats", hosts, peers=True)
        return {
            "ca.crt": authority.certificate.read_bytes(),
            "tls.crt": server.certificate.read_bytes(),
            "tls.key": server.key.read_bytes(),
        }


async def _make(kube: Kube, namespace: str, name: str, content: Callable[[], Content]) -> None:
    if await kube.find(SECRETS, namespace, name):
        logger.info("Secret %s/%s is there", namespace, name)
        return
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/part-of": "windowbox"},
        },
        "type": "Opaque",
        "data": {key: base64.b64encode(value).decode() for key, value in content().items()},
    }
    try:
        await kube.create(SECRETS, namespace, body, owner=_OWNER)
        logger.info("Secret %s/%s is made", namespace, name)
    except Conflict:  # somebody else was faster
        logger.info("Secret %s/%s is there", namespace, name)
