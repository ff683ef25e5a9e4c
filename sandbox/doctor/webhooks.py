"""Checks of webhooks: whether API servers call them, and get answers."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

from sandbox.doctor.findings import Finding
from webhooks import keeping
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import WindowboxError
from windowbox.models.objects import Json, mapping
from windowbox.models.refs import SERVICES
from windowbox.rights import rbac
from windowbox.rights import webhookconfigurations as configurations
from windowbox.rights.webhookconfigurations import Names
from windowbox.secretsmanager import contents
from windowbox.secretsmanager.manager import SecretsManager
from windowbox.settings.settings import Settings

_PATIENCE = 15
_ANSWER = 5
_RESTART = "look at the log of `windowbox admit`: it writes the configuration again within a second"


def examine(settings: Settings) -> Iterator[Finding]:
    """All checks of webhooks. Read-only."""
    if rbac.is_role(settings.nats.user):
        return  # a role may not list configurations

    async def examined() -> list[Finding]:
        cluster = settings.cluster
        async with asyncio.timeout(_PATIENCE), kube.from_file(cluster.kubeconfig, cluster.context) as api:
            return [finding async for finding in findings(api)]

    try:
        none = Finding(
            "webhooks", "note", "the API server calls no webhooks", "windowbox admit, if you want them"
        )
        yield from asyncio.run(examined()) or [none]
    except (WindowboxError, TimeoutError) as error:
        mend = "check the server in the kubeconfig"
        yield Finding("webhooks", "note", f"cannot be checked: {error}", mend)


async def findings(api: Kube) -> AsyncIterator[Finding]:
    """One finding for each of our configurations in the cluster; none if there is none."""
    for resource in configurations.RESOURCES.values():
        for names in configurations.COMPONENTS:
            if not (found := await api.find(resource, "", names.prefixed)):
                continue
            what, entries = f"{resource.kind} {names.prefixed}", found.raw.get("webhooks") or []
            count = "1 webhook" if len(entries) == 1 else f"{len(entries)} webhooks"
            finding = (
                Finding(what, "ok", count) if entries else Finding(what, "note", "all webhooks are disabled")
            )
            for entry in entries:
                problem, mend = await _of_client(api, names, mapping(entry.get("clientConfig")))
                if problem:
                    finding = Finding(what, "wrong", f"{entry.get('name')}: {problem}", mend)
                    break
            yield finding


async def _of_client(api: Kube, names: Names, client: Json) -> tuple[str, str]:
    """Why the API server cannot call the webhook, and the remedy; empty if it can."""
    try:
        bundle = base64.b64decode(client.get("caBundle") or "")
        trust = ssl.create_default_context(cadata=bundle.decode("ascii")) if bundle.strip() else None
    except (ValueError, TypeError, ssl.SSLError):
        trust = None
    if trust is None:
        return "its caBundle holds no authority: the API server trusts no webhook server", _RESTART
    if service := mapping(client.get("service")):
        namespace, name = str(service.get("namespace")), str(service.get("name"))
        if not await api.find(SERVICES, namespace, name):
            return f"there is no Service {namespace}/{name}", "create it, or set webhooks.mode"
        # This machine may be outside of the cluster's network: the Secret holds the certificate in use.
        found = await SecretsManager(api, namespace, names.identity).read(names.server)
        host = f"{name}.{namespace}.svc"
        if found and not contents.is_trusted(keeping.server_certificate(names, [host]), found[1], bundle):
            return f"its caBundle does not fit the certificate in the Secret {namespace}/{found[0]}", _RESTART
        return "", ""
    url = str(client.get("url"))
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 443
    head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
    try:
        async with asyncio.timeout(_ANSWER):
            reader, writer = await asyncio.open_connection(host, port, ssl=trust)
            try:
                writer.write(f"{head}Connection: close\r\nContent-Length: 2\r\n\r\n{{}}".encode())
                status = (await reader.readline()).decode("latin-1").split()
            finally:
                writer.transport.abort()
    except ssl.SSLCertVerificationError as error:
        return f"{url}: its caBundle does not fit the server's certificate: {error.verify_message}", _RESTART
    except (OSError, TimeoutError) as error:
        mend = "start `windowbox admit`; without it the API server refuses objects that need a review"
        return f"{url} does not answer: {str(error) or 'in time'}", mend
    if status[1:2] != ["200"]:
        mend = "start this version of `windowbox admit`, with the same webhooks.disabled"
        return f"{url} answers {' '.join(status[1:])}", mend
    return "", ""
