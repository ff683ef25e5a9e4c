"""Announces addresses to the neighbours of a link, and hears when another host announces them.

Neighbours send packets for an address to the host that announced it last: by ARP (RFC 826, 5227) for IPv4, by
neighbour advertisements (RFC 4861) for IPv6.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import struct
from collections.abc import Callable, Iterable, Iterator

from windowbox.errors import Refused

logger = logging.getLogger(__name__)

_ARP, _IPV6 = 0x0806, 0x86DD
_ICMPV6, _ADVERTISEMENT = 58, 136
_OVERRIDE = 0x20
_ALL_NODES, _ALL_NODES_MAC = ipaddress.IPv6Address("ff02::1").packed, bytes.fromhex("333300000001")
_BROADCAST = b"\xff" * 6
_FILTER = 1
"""ICMP6_FILTER: the types that a socket does not receive, as 256 bits."""
_OUTGOING = 4
"""PACKET_OUTGOING: a frame that this host sends."""


def frame(mac: bytes, address: str) -> bytes:
    """The Ethernet frame that directs an address to this MAC address."""
    packed = ipaddress.ip_address(address).packed
    if ":" not in address:
        # A request for the own address: all systems learn from it, also those that ignore replies.
        arp = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + mac + packed + bytes(6) + packed
        return _BROADCAST + mac + struct.pack("!H", _ARP) + arp
    body = struct.pack("!BBHB3x", _ADVERTISEMENT, 0, 0, _OVERRIDE) + packed + struct.pack("!BB", 2, 1) + mac
    pseudo = packed + _ALL_NODES + struct.pack("!II", len(body), _ICMPV6)
    body = body[:2] + struct.pack("!H", _checksum(pseudo + body)) + body[4:]
    header = struct.pack("!IHBB", 6 << 28, len(body), _ICMPV6, 255) + packed + _ALL_NODES
    return _ALL_NODES_MAC + mac + struct.pack("!H", _IPV6) + header + body


def announced_by(arp: bytes) -> str | None:
    """The address that an ARP packet announces; None if it is another packet."""
    if len(arp) < 28 or arp[:6] != struct.pack("!HHBB", 1, 0x0800, 6, 4) or arp[14:18] != arp[24:28]:
        return None
    return str(ipaddress.IPv4Address(arp[14:18]))


def advertised_by(icmp: bytes) -> str | None:
    """The address that an unsolicited neighbour advertisement is about; None if it is another message."""
    if len(icmp) < 24 or icmp[0] != _ADVERTISEMENT or icmp[4] & 0x40:
        return None
    return str(ipaddress.IPv6Address(icmp[8:24]))


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def announce(link: str, mac: bytes, addresses: Iterable[str]) -> None:
    """Send the announcements. Refused if this process may not (CAP_NET_RAW)."""
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
            sender.bind((link, 0))
            for address in addresses:
                sender.send(frame(mac, address))
    except OSError as error:
        raise Refused(f"announce addresses on {link}: {error.strerror or error}") from error


@contextlib.contextmanager
def hearing(act: Callable[[str], None]) -> Iterator[None]:
    """Call `act` with each address that another host announces on any link, within the block."""
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        for opened, read in ((_arp_socket, _heard_arp), (_icmp_socket, _heard_icmp)):
            try:
                receiver = stack.enter_context(opened())
            except OSError as error:  # a host may lack IPv6
                logger.warning("announcements of other hosts are not heard: %s", error)
                continue

            def take(receiver: socket.socket = receiver, read: _Read = read) -> None:
                with contextlib.suppress(BlockingIOError):
                    if address := read(receiver):
                        act(address)

            loop.add_reader(receiver, take)
            stack.callback(loop.remove_reader, receiver)
        yield


_Read = Callable[[socket.socket], str | None]


def _arp_socket() -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, socket.htons(_ARP))
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)  # a host may take a thousand at once
    return opened


def _heard_arp(receiver: socket.socket) -> str | None:
    packet, (_, _, kind, *_) = receiver.recvfrom(64)
    return None if kind == _OUTGOING else announced_by(packet)


def _icmp_socket() -> socket.socket:
    opened = socket.socket(socket.AF_INET6, socket.SOCK_RAW | socket.SOCK_NONBLOCK, _ICMPV6)
    blocked = bytearray(b"\xff" * 32)
    number, bit = divmod(_ADVERTISEMENT, 32)
    struct.pack_into("=I", blocked, number * 4, 0xFFFFFFFF & ~(1 << bit))
    opened.setsockopt(_ICMPV6, _FILTER, bytes(blocked))
    opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    return opened


def _heard_icmp(receiver: socket.socket) -> str | None:
    packet, extra, *_ = receiver.recvmsg(256, 64)
    hops = [value for level, kind, value in extra if (level, kind) == (41, socket.IPV6_HOPLIMIT)]
    # A router would have counted: it comes from a neighbour.
    return advertised_by(packet) if hops and int.from_bytes(hops[0], "little") == 255 else None
