"""`windowbox verify`: one record through all of an installation."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable

from windowbox.clients.kubernetes.kube import Kube
from windowbox.clients.nameserver import Nameserver
from windowbox.errors import Unreachable
from windowbox.models.recordsets import RecordKey
from windowbox.models.refs import DNSRECORDS
from windowbox.settings.dnssettings import DnsSettings

_ADDRESS = "192.0.2.1"
_PAUSE = 0.2


async def steps(kube: Kube, namespace: str, zone: str, server: str, patience: float) -> AsyncIterator[str]:
    """Make a record, resolve it, delete it; yields what has been done."""
    name = f"verify-{secrets.token_hex(4)}"
    domain, what = f"{name}.{zone}", f"DNSRecord {namespace}/{name}"
    dns = Nameserver(DnsSettings.model_validate({"zones": [{"name": zone, "servers": [server]}]}))

    async def succeeded() -> bool:
        found = await kube.get(DNSRECORDS, namespace, name)
        return found.last_operation.get("state") == "Succeeded"

    async def answered() -> bool:
        found = await dns.read(zone, RecordKey(domain, "A"))
        return found is not None and found.values == (_ADDRESS,)

    async def unanswered() -> bool:
        return await dns.read(zone, RecordKey(domain, "A")) is None

    try:
        await kube.create(DNSRECORDS, namespace, _record(name, namespace, domain))
        yield f"{what} is made"
        await _until(succeeded, patience, f"{what} has not succeeded: does `windowbox work` run?")
        yield "it has succeeded"
        await _until(answered, patience, f"{server} does not answer for {domain}")
        yield f"{server} answers {domain} with {_ADDRESS}"
        await kube.delete(DNSRECORDS, namespace, name)
        await _until(unanswered, patience, f"{server} still answers for {domain}")
        yield "it is deleted, and its name is gone"
    finally:
        await kube.remove(DNSRECORDS, namespace, name)
        await dns.aclose()


async def _until(true: Callable[[], Awaitable[bool]], patience: float, otherwise: str) -> None:
    """Ask again and again: an installation is verified from outside, where no events are."""
    try:
        async with asyncio.timeout(patience):
            while not await true():  # noqa: ASYNC110 -- the server announces nothing
                await asyncio.sleep(_PAUSE)
    except TimeoutError:
        raise Unreachable(f"{otherwise} (waited {patience:g} s)") from None


def _record(name: str, namespace: str, domain: str) -> dict[str, object]:
    return {
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
