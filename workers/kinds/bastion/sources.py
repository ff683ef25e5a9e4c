"""From where a Bastion may be reached: prefixes without exceptions, as load balancers take them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import (
    IPv4Address,
    IPv6Address,
    summarize_address_range,
)
from itertools import islice
from typing import NamedTuple

from windowbox.errors import Malformed
from windowbox.models import addresses
from windowbox.models.addresses import Network
from windowbox.models.gardener.bastion import BastionIngress, IPBlock

_MAX_SOURCES = 5000


class Span(NamedTuple):
    """Addresses of one family, from the first to the last."""

    version: int
    first: int
    last: int


def sources(ingress: Sequence[BastionIngress]) -> list[str]:
    """What is left of all blocks, in as few prefixes as possible, IPv4 first.

    Never empty: to load balancers, no prefixes would mean everybody.
    """
    if not ingress:
        raise Malformed("spec.ingress is empty, so nobody could connect: add an ipBlock with a cidr")
    left: list[Span] = []
    for index, entry in enumerate(ingress):
        left += _left(entry.ip_block, f"spec.ingress[{index}].ipBlock")
    found = [str(network) for network in islice(_networks(_joined(left)), _MAX_SOURCES + 1)]
    if len(found) > _MAX_SOURCES:
        raise Malformed(
            f"spec.ingress comes to more than {_MAX_SOURCES} prefixes: give fewer blocks and exceptions"
        )
    return found


def _left(block: IPBlock, where: str) -> list[Span]:
    """The addresses of a block without its exceptions."""
    whole = _network(block.cidr, f"{where}.cidr")
    exceptions = [
        _exception(text, whole, f"{where}.except[{index}]") for index, text in enumerate(block.except_ or [])
    ]
    left, first = [], int(whole.network_address)
    for gap in _joined(map(_span, exceptions)):
        if first < gap.first:
            left.append(Span(whole.version, first, gap.first - 1))
        first = gap.last + 1
    if first <= (last := int(whole.broadcast_address)):
        left.append(Span(whole.version, first, last))
    if not left:
        raise Malformed(f"{where}.except leaves nothing of {whole}: take exceptions out, or the whole block")
    return left


def _exception(text: str, whole: Network, where: str) -> Network:
    found = _network(text, where)
    if not _inside(found, whole):
        raise Malformed(f"{where} is {text!r}, which is no part of {whole}: correct it, or take it out")
    return found


def _inside(part: Network, whole: Network) -> bool:
    one, other = _span(part), _span(whole)
    return (
        one != other and one.version == other.version and other.first <= one.first and one.last <= other.last
    )


def _network(text: str, where: str) -> Network:
    """A prefix, whatever stands behind its length."""
    found = addresses.prefix(text)
    if found is None:
        raise Malformed(f"{where} is {text!r:.60}: give a prefix such as 203.0.113.0/24 or 2001:db8::/64")
    return found


def _span(network: Network) -> Span:
    return Span(network.version, int(network.network_address), int(network.broadcast_address))


def _joined(spans: Iterable[Span]) -> list[Span]:
    """In order, and as one what touches or overlaps."""
    joined: list[Span] = []
    for span in sorted(spans):
        if joined and joined[-1].version == span.version and span.first <= joined[-1].last + 1:
            joined[-1] = joined[-1]._replace(last=max(joined[-1].last, span.last))
        else:
            joined.append(span)
    return joined


def _networks(spans: Iterable[Span]) -> Iterator[Network]:
    for span in spans:
        if span.version == 4:
            yield from summarize_address_range(IPv4Address(span.first), IPv4Address(span.last))
        else:
            yield from summarize_address_range(IPv6Address(span.first), IPv6Address(span.last))
