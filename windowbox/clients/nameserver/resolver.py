"""Checks whether this host's resolver answers what was written. It is informative only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

import aiodns
import pycares

from windowbox.models.recordsets import RecordSet

TIMEOUT = 2.0


@dataclass(frozen=True, slots=True)
class ResolverFinding:
    """Whether the resolver gives the wanted answer, and a sentence about it."""

    answers: bool
    text: str


async def ask_resolver(
    wanted: RecordSet, *, servers: Sequence[str] = (), port: int = 53, timeout: float = TIMEOUT
) -> ResolverFinding:
    """Ask the host's resolver, or `servers`, about `wanted`. Never raises: the finding holds every error."""
    # A resolver object caches answers, empty ones for up to an hour, and its cache cannot be disabled.
    # So each question gets a new object: https://github.com/c-ares/c-ares/issues/1293
    what = f"{wanted.key.name} {wanted.key.type}"
    try:
        async with aiodns.DNSResolver(
            nameservers=list(servers) or None,
            timeout=timeout,
            tries=2,
            udp_port=port,
            tcp_port=port,
            flags=pycares.ARES_FLAG_NOSEARCH,
        ) as resolver:
            answer = await resolver.query_dns(wanted.key.name + ".", wanted.key.type)
    except aiodns.error.DNSError as error:
        return ResolverFinding(False, f"this host's resolver does not answer for {what}: {error.args[-1]}")
    found = {text for record in answer.answer if (text := _text(record.data)) is not None}
    if found == set(wanted.values):
        return ResolverFinding(True, f"this host's resolver answers for {what} as wanted")
    shown = ", ".join(sorted(found)[:5]) or "nothing"
    return ResolverFinding(False, f"this host's resolver still answers {shown} for {what}")


def _text(data: object) -> str | None:
    match data:
        case pycares.ARecordData(addr=address) | pycares.AAAARecordData(addr=address):
            return str(ip_address(address))
        case pycares.CNAMERecordData(cname=target):
            return target.lower().removesuffix(".")
        case pycares.TXTRecordData(data=octets):
            return octets.decode("utf-8", "surrogateescape")
        case _:
            return None
