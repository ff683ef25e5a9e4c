"""Addresses and routes of this host, for Envoys that share its network."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import socket
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import orjson

from windowbox.errors import Refused, Unreachable
from windowbox.models.loadbalancers import Protocol, family

ADDED = "addresses.json"
"""The record of the addresses that were added for Envoys, in the folder of all of them."""

PROTOCOL = "141"
"""Marks routes as ours; no routing daemon is known by this number."""

MIGRATE = "net.ipv4.tcp_migrate_req"
"""With 1, who waits at a listener that closes goes to another one of the same address. With 0, as usual, the
connection is reset. Linux has had it since 5.14, for each network."""

_TIMEOUT = 5.0
_LOOPBACK = ipaddress.ip_network("127.0.0.0/8")
_UNUSED = "127.255.255.254"
"""Nobody listens there alone."""


async def prepare(addresses: Sequence[str], record: Path | None = None) -> dict[str, str]:
    """Have these addresses arrive at this host. For those that do not, what a person has to do.

    `record` tells of those that are added, so that they can be removed.
    """
    lacking = [address for address in addresses if not arrives(address)]
    if lacking and record and os.geteuid() == 0:
        _note(record, {*added(record), *lacking})  # what may have been added is known before it is
    return {address: reason for address in lacking if (reason := await _add(address))}


def added(record: Path) -> list[str]:
    """The addresses that were added to this host, and not removed yet."""
    return list(orjson.loads(record.read_bytes())) if record.exists() else []


async def remove(addresses: Collection[str], record: Path) -> None:
    """Remove addresses that were added to this host."""
    for address in addresses:
        with contextlib.suppress(Refused):  # gone already
            await run(*removing(address))
    _note(record, set(added(record)) - set(addresses))


def removing(address: str) -> list[str]:
    """The command that removes an address that was added."""
    if sys.platform == "darwin":
        return ["ifconfig", "lo0", *_darwin_family(address), address, "-alias"]
    return ["ip", "address", "del", _alone(address), "dev", "lo"]


def arrives(address: str) -> bool:
    if sys.platform == "linux" and ipaddress.ip_address(address) in _LOOPBACK:
        return True  # all of it, without being told
    kind = socket.AF_INET6 if family(address) == "IPv6" else socket.AF_INET
    try:
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def is_held_everywhere(port: int, protocol: Protocol) -> bool:
    """Whether a process of this host has this port of all addresses."""
    kind = socket.SOCK_STREAM if protocol == "TCP" else socket.SOCK_DGRAM
    with socket.socket(socket.AF_INET, kind) as probe:
        try:
            probe.bind((_UNUSED, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def keep_waiting_connections() -> None:
    """Have nobody reset who waits at an Envoy that makes way for another. As far as it is ours to set."""
    setting = setting_of(MIGRATE)
    with contextlib.suppress(OSError):
        if setting.read_text().strip() == "0":
            setting.write_text("1")


def setting_of(name: str) -> Path:
    """Where the system has a setting of this network."""
    return Path("/proc/sys", *name.split("."))


async def route(record: Path, routes: Mapping[str, str]) -> None:
    """Have exactly these routes, and no longer those that `record` says were set for it before."""
    before = _read(record)
    if not routes and not before:
        return
    _write(record, {**before, **routes})  # what may have been set is known before it is
    for prefix, hop in routes.items():
        await _ip(*_spoken(prefix), "route", "replace", prefix, "via", hop, "proto", PROTOCOL)
    for prefix in before.keys() - routes.keys():
        with contextlib.suppress(Refused):  # gone already, perhaps with its link
            await _ip(*_spoken(prefix), "route", "del", prefix, "proto", PROTOCOL)
    _write(record, routes)


def _read(record: Path) -> dict[str, str]:
    return dict(orjson.loads(record.read_bytes())) if record.exists() else {}


def _write(record: Path, routes: Mapping[str, str]) -> None:
    _replace(record, dict(routes))


def _note(record: Path, addresses: Collection[str]) -> None:
    if addresses:
        record.parent.mkdir(parents=True, exist_ok=True)
        _replace(record, sorted(addresses))
    else:
        record.unlink(missing_ok=True)


def _replace(record: Path, content: object) -> None:
    temporary = record.with_suffix(".new")
    temporary.write_bytes(orjson.dumps(content, option=orjson.OPT_SORT_KEYS))
    os.replace(temporary, record)


async def _add(address: str) -> str | None:
    command = _adding(address)
    if os.geteuid() != 0:
        return f"{address} does not arrive at this host: run `sudo {' '.join(command)}`"
    try:
        await run(*command)
    except (Refused, Unreachable) as error:
        return f"{address} does not arrive at this host: {error}"
    return None


def _adding(address: str) -> list[str]:
    if sys.platform == "darwin":
        return ["ifconfig", "lo0", *_darwin_family(address), address, "alias"]
    # A second time is not an error, unlike with `add`.
    return ["ip", "address", "replace", _alone(address), "dev", "lo"]


def _darwin_family(address: str) -> list[str]:
    return ["inet6" if family(address) == "IPv6" else "inet"]


def _alone(address: str) -> str:
    """As a network of one address."""
    return f"{address}/{128 if family(address) == 'IPv6' else 32}"


def _spoken(prefix: str) -> list[str]:
    return ["-6"] if family(prefix) == "IPv6" else []


async def _ip(*arguments: str) -> None:
    if os.geteuid() != 0:
        raise Refused(f"routes need root: run `sudo ip {' '.join(arguments)}`")
    await run("ip", *arguments)


async def run(*argv: str, limit: float = _TIMEOUT) -> str:
    """What a program of this host says. Refused if it ends with an error."""
    command = " ".join(argv)
    try:
        child = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError as error:
        raise Refused(f"`{command}`: there is no program {argv[0]!r} on this host") from error
    try:
        async with asyncio.timeout(limit):
            output, errors = await child.communicate()
    except TimeoutError as error:
        raise Unreachable(f"`{command}` does not end") from error
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        raise Refused(f"`{command}`: {errors.decode(errors='replace').strip()}")
    return output.decode(errors="replace")
