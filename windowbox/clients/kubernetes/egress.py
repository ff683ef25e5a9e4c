"""The egress policy: addresses that kubeconfigs in Secrets may lead to."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

ALWAYS_DENIED: tuple[Network, ...] = tuple(
    map(
        ip_network,
        (
            *("0.0.0.0/8", "127.0.0.0/8", "::/128", "::1/128"),  # this host
            *("169.254.0.0/16", "fe80::/10", "fec0::/10"),  # this link, and most clouds' metadata
            # Metadata of other clouds: Alibaba's, Azure's, Oracle's, AWS' for IPv6.
            *("100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", "fd00:ec2::254/128"),
            *("224.0.0.0/4", "255.255.255.255/32", "ff00::/8"),  # many at once
        ),
    )
)
_NAT64 = ip_network("64:ff9b::/96")
_COMPATIBLE = ip_network("::/96")


@dataclass(frozen=True)
class Egress:
    """Denied prefixes, and exceptions from them."""

    denied: tuple[Network, ...] = ()
    """In addition to loopback, link-local, multicast and the metadata services of clouds."""
    allowed: tuple[Network, ...] = ()

    def permits(self, address: Address) -> bool:
        """Whether connections to this address are permitted; for one that embeds another, both must be."""
        return all(
            _within(one, self.allowed) or not (_within(one, ALWAYS_DENIED) or _within(one, self.denied))
            for one in _meant(address)
        )

    def permits_host(self, host: str) -> bool:
        """Whether `host` is a permitted address, or a name, which is checked after its resolution."""
        try:
            return self.permits(ip_address(host))
        except ValueError:
            return True

    def socket(self, info: tuple[Any, ...]) -> socket.socket:
        """A socket for one result of getaddrinfo. OSError if the address is denied.

        The connection uses this very address, so that DNS rebinding after the check has no effect.
        """
        family, kind, protocol, _, address = info
        if not self.permits(ip_address(address[0].partition("%")[0])):
            raise OSError(
                errno.EACCES, f"{os.strerror(errno.EACCES)}: {address[0]} is denied by egress settings"
            )
        return socket.socket(family, kind, protocol)


def _within(address: Address, networks: tuple[Network, ...]) -> bool:
    return any(address in network for network in networks)


def _meant(address: Address) -> Iterator[Address]:
    """The address, and the IPv4 address that it embeds."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        if inner:
            yield inner
        if address.ipv4_mapped:
            return
    yield address
