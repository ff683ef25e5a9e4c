"""Reads what a machine reaches, and which addresses and names are free. Asks name servers and web pages."""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
from collections.abc import Iterable
from pathlib import Path

from sandbox.nodes import addresses, claims, routes
from sandbox.options import Options
from sandbox.programs import downloads, web
from sandbox.programs.releases import Image, Release
from sandbox.servers import ranges

_RESOLV_CONF = Path("/etc/resolv.conf")
_ANSWER = 2.0
_DNS = 53
_ROOT_QUERY = bytes.fromhex("0100 0001 0000 0000 0000") + bytes.fromhex("00 0002 0001")
"""The rest of a DNS query after its number: who serves the root."""


def name_servers() -> dict[str, bool]:
    """The name servers of this host, and whether they answer."""
    return asyncio.run(_asked(nameservers_in(_RESOLV_CONF.read_text() if _RESOLV_CONF.exists() else "")))


def nameservers_in(text: str) -> list[str]:
    """Those that a resolv.conf names; a resolver uses three at most."""
    return re.findall(r"^\s*nameserver\s+(\S+)", text, re.MULTILINE)[:3]


async def _asked(servers: Iterable[str]) -> dict[str, bool]:
    servers = list(servers)
    return dict(zip(servers, await asyncio.gather(*map(_answers, servers)), strict=True))


async def _answers(server: str) -> bool:
    """Whether anything that could be an answer comes."""
    loop, number = asyncio.get_running_loop(), secrets.token_bytes(2)
    kind = socket.AF_INET6 if ":" in server else socket.AF_INET
    try:
        with socket.socket(kind, socket.SOCK_DGRAM) as asking:
            asking.setblocking(False)
            asking.connect((server, _DNS))
            await loop.sock_sendall(asking, number + _ROOT_QUERY)
            async with asyncio.timeout(_ANSWER):
                return (await loop.sock_recv(asking, 512))[:2] == number
    except (OSError, TimeoutError):
        return False


def unreachable(places: Iterable[Release | Image]) -> dict[str, str]:
    """By source: why it does not answer; empty if it does."""

    async def ask() -> dict[str, str]:
        sources = {place.source: place for place in places}
        async with web.session() as session:
            reasons = await asyncio.gather(*(downloads.refusal(session, one) for one in sources.values()))
        return dict(zip(sources, reasons, strict=True))

    return asyncio.run(ask())


def free_parts() -> tuple[int, tuple[str, ...]]:
    """For how many sandboxes there are addresses, and the routes of others into their ranges."""
    parts, known = list(addresses.parts(Options().ranges)), routes.known(foreign=True)
    found = [[*ranges.overlapping(v4, known), *ranges.overlapping(v6, known)] for v4, v6 in parts]
    overlapping = sorted({str(route) for one in found for route in one})
    return sum(not one for one in found), tuple(overlapping)


def site() -> str:
    """The name from which those of the next sandbox's network namespaces derive."""
    taken = claims.taken()
    return claims.Claim(next((n for n in claims.numbers() if n not in taken), 0)).name
