"""Addresses that move between hosts: on the link of their subnet, announced to its neighbours."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from windowbox.errors import Refused, Unreachable
from workers.loadbalancer.links import announcing, hostnetwork

logger = logging.getLogger(__name__)

_REPEATED = (0.2, 1.0, 3.0)
"""Seconds from the first announcement to the next ones: one may be lost."""
_ELSEWHERE = "is another host's for now"


class Link(NamedTuple):
    """A link of this host."""

    name: str
    mac: bytes


class Links:
    """Adds addresses to the links of this host, and announces them. Only allowed addresses are added."""

    def __init__(self) -> None:
        self._addresses: Container[str] = ()
        self._tidied = False
        """Whether no address is on the loopback, where an edge without other hosts had them."""

    def allow(self, addresses: Container[str]) -> None:
        """This host serves these addresses, and no others."""
        self._addresses = addresses

    async def prepare(self, addresses: Sequence[str], record: Path) -> dict[str, str]:
        """Add these addresses to this host, and announce them. For those where that fails, why."""
        if not self._tidied:
            await hostnetwork.leave_loopback(record)
            self._tidied = True
        refused = {address: _ELSEWHERE for address in addresses if address not in self._addresses}
        lacking = [a for a in addresses if a not in refused and not hostnetwork.arrives(a)]
        if not lacking:
            return refused
        chosen = links_of(lacking, json.loads(await hostnetwork.run("ip", "-json", "address", "show")))
        refused |= {
            address: f"no link of this host has a subnet with {address}"
            for address in lacking
            if address not in chosen
        }
        hostnetwork.note(record, {*hostnetwork.added(record), *chosen})  # first: a crash leaves none behind
        await hostnetwork.batch(_adding(address, link.name) for address, link in chosen.items())
        failed = {a: f"{a} cannot be added to {chosen[a].name}" for a in chosen if not hostnetwork.arrives(a)}
        by_link = defaultdict[Link, list[str]](list)
        for address, link in chosen.items():
            if address not in failed:
                by_link[link].append(address)
        for link, added in by_link.items():
            self._announce(link, added)
            for later in _REPEATED:
                asyncio.get_running_loop().call_later(later, self._announce, link, added)
        return refused | failed

    async def remove(self, addresses: Collection[str], record: Path) -> None:
        """Remove added addresses from this host."""
        await _remove(addresses)
        hostnetwork.note(record, set(hostnetwork.added(record)) - set(addresses))

    def _announce(self, link: Link, addresses: Iterable[str]) -> None:
        try:
            announcing.announce(link.name, link.mac, [a for a in addresses if a in self._addresses])
        except Refused as error:
            logger.warning("%s", error)


def links_of(addresses: Iterable[str], shown: Sequence[Mapping[str, Any]]) -> dict[str, Link]:
    """The link with the smallest subnet around each address, by the output of `ip -json address show`."""
    subnets = [
        (ipaddress.ip_network(f"{one['local']}/{one['prefixlen']}", strict=False), link)
        for link in shown
        if link.get("link_type") == "ether" and "UP" in link.get("flags", ())
        for one in link.get("addr_info", ())
        if one.get("scope") == "global"
    ]
    found = {}
    for address in addresses:
        parsed = ipaddress.ip_address(address)
        around = [(net, link) for net, link in subnets if net.num_addresses > 1 and parsed in net]
        if around:
            _, link = max(around, key=lambda one: one[0].prefixlen)
            found[address] = Link(link["ifname"], bytes.fromhex(link["address"].replace(":", "")))
    return found


async def leave(record: Path) -> None:
    """Remove all added addresses: the Envoys of this host have ended. The edge adds those of the next one."""
    try:
        await _remove(hostnetwork.added(record))
    except (Refused, Unreachable) as error:
        logger.error("%s", error)


async def _remove(addresses: Collection[str]) -> None:
    """Remove addresses from all links of this host."""
    shown = json.loads(await hostnetwork.run("ip", "-json", "address", "show"))
    await hostnetwork.batch(
        f"address del {one['local']}/{one['prefixlen']} dev {link['ifname']}"
        for link in shown
        for one in link.get("addr_info", ())
        if one.get("local") in addresses and one["prefixlen"] in (32, 128)
    )


def _adding(address: str, link: str) -> str:
    if ":" not in address:
        return f"address replace {address}/32 dev {link}"
    # Tentative addresses cannot be bound, and one that is not deprecated may become a source address.
    return f"address replace {address}/128 dev {link} nodad noprefixroute preferred_lft 0"


async def yielding(record: Path) -> None:
    """Remove each added address that another host announces; never returns.

    The other host holds it now: the edge of this one may be dead, or cut off from the bus.
    """
    heard, news = set[str](), asyncio.Event()

    def note(address: str) -> None:
        heard.add(address)
        news.set()

    with announcing.hearing(note):
        while True:
            await news.wait()
            news.clear()
            lost = heard & set(hostnetwork.added(record))
            heard.clear()
            if lost := {address for address in lost if hostnetwork.arrives(address)}:
                logger.warning("another host announces %s: removed here", ", ".join(sorted(lost)))
                try:
                    await _remove(lost)
                except (Refused, Unreachable) as error:
                    logger.error("%s", error)
