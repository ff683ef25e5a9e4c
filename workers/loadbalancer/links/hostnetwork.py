"""Addresses and routes of this host, for Envoys that share its network."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import json
import os
import socket
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from windowbox.errors import Refused, Unreachable

ADDED = "addresses.json"
"""The record of the addresses that were added for Envoys, in the folder of all of them."""

PROTOCOL = "141"
"""Marks routes as ours; no routing daemon uses this number."""

MIGRATE = "net.ipv4.tcp_migrate_req"
"""With 1, connections that a closing listener has not accepted move to another listener of the same address.
With 0, the default, they are reset. Since Linux 5.14, for each network namespace."""

_TIMEOUT = 5.0
_LOOPBACK = ipaddress.ip_network("127.0.0.0/8")
_UNUSED = "127.255.255.254"
"""An address on which no program listens alone."""


async def prepare(addresses: Sequence[str], record: Path | None = None) -> dict[str, str]:
    """Add these addresses to this host. For those where that fails, what a person has to do.

    `record` lists the added ones, so that they can be removed.
    """
    lacking = [address for address in addresses if not arrives(address)]
    if lacking and record and os.geteuid() == 0:
        note(record, {*added(record), *lacking})  # first: a crash leaves no address without a record
    return {address: reason for address in lacking if (reason := await _add(address))}


def added(record: Path) -> list[str]:
    """The addresses that were added to this host, and not removed yet."""
    return list(json.loads(record.read_bytes())) if record.exists() else []


async def remove(addresses: Collection[str], record: Path) -> None:
    """Remove addresses that were added to this host."""
    for address in addresses:
        with contextlib.suppress(Refused):  # it is gone already
            await run(*removing(address))
    note(record, set(added(record)) - set(addresses))


async def leave_loopback(record: Path) -> None:
    """Remove added addresses from the loopback, as far as they are there."""
    await batch(f"address del {_as_prefix(address)} dev lo" for address in added(record))


def removing(address: str) -> list[str]:
    """The command that removes an added address."""
    if sys.platform == "darwin":
        return ["ifconfig", "lo0", _darwin_family(address), address, "-alias"]
    return ["ip", "address", "del", _as_prefix(address), "dev", "lo"]


def arrives(address: str) -> bool:
    """Whether this host has the address."""
    if sys.platform == "linux" and ipaddress.ip_address(address) in _LOOPBACK:
        return True  # Linux has all of 127.0.0.0/8
    kind = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def is_held_everywhere(port: int, protocol: str) -> bool:
    """Whether a process of this host has this port on all addresses."""
    kind = socket.SOCK_STREAM if protocol == "TCP" else socket.SOCK_DGRAM
    with socket.socket(socket.AF_INET, kind) as probe:
        try:
            probe.bind((_UNUSED, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def keep_waiting_connections() -> None:
    """Keep connections that a replaced Envoy has not accepted, if we may set MIGRATE."""
    setting = setting_of(MIGRATE)
    with contextlib.suppress(OSError):
        if setting.read_text().strip() == "0":
            setting.write_text("1")


def setting_of(name: str) -> Path:
    """The file of a sysctl."""
    return Path("/proc/sys", *name.split("."))


async def route(record: Path, routes: Mapping[str, str]) -> None:
    """Have exactly these routes; earlier ones, which `record` lists, are removed.

    Where this host is the next hop itself, it has a route to its Pods, which another one would hide.
    """
    routes = {prefix: hop for prefix, hop in routes.items() if not arrives(hop)}
    before = _routes(record)
    if not routes and not before:
        return
    _replace(record, {**before, **routes})  # first: a crash leaves no route without a record
    for prefix, hop in routes.items():
        await _ip_route("replace", prefix, "via", hop)
    for prefix in before.keys() - routes.keys():
        with contextlib.suppress(Refused):  # it is gone already, perhaps with its link
            await _ip_route("del", prefix)
    _replace(record, dict(routes))


def _routes(record: Path) -> dict[str, str]:
    return dict(json.loads(record.read_bytes())) if record.exists() else {}


def note(record: Path, addresses: Collection[str]) -> None:
    """Record these as the added addresses."""
    if addresses:
        record.parent.mkdir(parents=True, exist_ok=True)
        _replace(record, sorted(addresses))
    else:
        record.unlink(missing_ok=True)


def _replace(record: Path, content: object) -> None:
    temporary = record.with_suffix(".new")
    temporary.write_text(json.dumps(content, sort_keys=True))
    os.replace(temporary, record)


async def _add(address: str) -> str | None:
    # `replace` is idempotent, unlike `add`.
    command = ["ip", "address", "replace", _as_prefix(address), "dev", "lo"]
    if sys.platform == "darwin":
        command = ["ifconfig", "lo0", _darwin_family(address), address, "alias"]
    if os.geteuid() != 0:
        return f"{address} does not arrive at this host: run `sudo {' '.join(command)}`"
    try:
        await run(*command)
    except (Refused, Unreachable) as error:
        return f"{address} does not arrive at this host: {error}"
    return None


def _darwin_family(address: str) -> str:
    return "inet6" if ":" in address else "inet"


def _as_prefix(address: str) -> str:
    return f"{address}/{128 if ':' in address else 32}"


async def _ip_route(action: str, prefix: str, *rest: str) -> None:
    spoken = ["-6"] if ":" in prefix else []
    arguments = [*spoken, "route", action, prefix, *rest, "proto", PROTOCOL]
    if os.geteuid() != 0:
        raise Refused(f"routes need root: run `sudo ip {' '.join(arguments)}`")
    await run("ip", *arguments)


async def batch(commands: Iterable[str]) -> None:
    """Run these `ip` commands in order; a failed one does not end the others."""
    if text := "".join(f"{one}\n" for one in commands):
        with contextlib.suppress(Refused):
            await run("ip", "-force", "-batch", "-", stdin=text)


async def run(*argv: str, limit: float = _TIMEOUT, stdin: str = "") -> str:
    """The output of a program of this host. Refused if it fails."""
    command = " ".join(argv)
    try:
        child = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError as error:
        raise Refused(f"`{command}`: there is no program {argv[0]!r} on this host") from error
    try:
        async with asyncio.timeout(limit):
            output, errors = await child.communicate(stdin.encode() if stdin else None)
    except TimeoutError as error:
        raise Unreachable(f"`{command}` does not end") from error
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        raise Refused(f"`{command}`: {errors.decode(errors='replace').strip()}")
    return output.decode(errors="replace")
