"""Configuration files of a host's resolver: queries for our zone go to our name server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import assert_never

from sandbox import state
from sandbox.servers import zoneserver
from windowbox.errors import Malformed, Missing, Refused
from windowbox.settings.dnssettings import split_server

MARKER = "# Written by windowbox; `windowbox resolver remove` takes it away."
"""First line of every file that we write. All other files are left alone."""

IPAddress = IPv4Address | IPv6Address

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")


class Method(StrEnum):
    """The resolver of a host."""

    SYSTEMD = "systemd"
    MACOS = "macos"
    DNSMASQ = "dnsmasq"
    HOSTS = "hosts"


FOLDERS = {
    Method.SYSTEMD: Path("etc/systemd/resolved.conf.d"),
    Method.MACOS: Path("etc/resolver"),
    Method.DNSMASQ: Path("etc/dnsmasq.d"),
}
"""Where a method reads additional files, below the root of the file system."""

RELOAD: dict[Method, tuple[tuple[str, ...], ...]] = {
    Method.SYSTEMD: (("systemctl", "restart", "systemd-resolved"),),
    Method.MACOS: (("dscacheutil", "-flushcache"), ("killall", "-HUP", "mDNSResponder")),
    Method.DNSMASQ: (("systemctl", "restart", "dnsmasq"),),
    Method.HOSTS: (),
}
"""Commands that make running resolvers read the files again."""


@dataclass(frozen=True, slots=True)
class Target:
    """A zone and its name server."""

    zone: str
    address: IPAddress
    port: int


def target(zone: str, server: str) -> Target:
    name = zone.strip().lower().removesuffix(".")
    if not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise Malformed(f"zone {zone!r}: write its apex, like local.gardener.cloud")
    try:
        host, port = split_server(server)
        return Target(name, ip_address(host), port)
    except ValueError as error:
        # A name instead of an address could only be resolved with this configuration.
        raise Malformed(f"server {server!r}: write its address, like 127.0.0.1:5300 or [::1]:5300") from error


def fitting(system: str, root: Path) -> Method:
    """The method for a host of this kind (as `platform.system()` names it), judged by its files."""
    if system == "Darwin":
        return Method.MACOS
    if (root / "run/systemd/resolve").is_dir():
        return Method.SYSTEMD
    if (root / FOLDERS[Method.DNSMASQ]).is_dir():
        return Method.DNSMASQ
    return Method.HOSTS


def path(method: Method, zone: str, root: Path) -> Path:
    """The file that `method` reads about `zone`."""
    # On macOS the name of the file is the zone.
    name = zone if method is Method.MACOS else f"windowbox-{zone}.conf"
    return root / FOLDERS[method] / name


def text(method: Method, target: Target) -> str:
    """The content of that file."""
    match method:
        case Method.SYSTEMD:
            host = f"[{target.address}]" if target.address.version == 6 else str(target.address)
            return _lines("[Resolve]", f"DNS={host}:{target.port}", f"Domains=~{target.zone}")
        case Method.MACOS:
            return _lines(f"nameserver {target.address}", f"port {target.port}")
        case Method.DNSMASQ:
            server = f"server=/{target.zone}/{target.address}#{target.port}"
            # Permit private addresses in answers, which dnsmasq may filter (rebind protection).
            return _lines(server, f"rebind-domain-ok=/{target.zone}/")
        case Method.HOSTS:
            raise Refused("a hosts file holds names, not name servers: paste the lines into it yourself")
        case _:
            assert_never(method)


def hosts_block(zone: str, addresses: Mapping[str, Sequence[IPAddress]]) -> str:
    """Lines for a hosts file: a copy of the current answers, without wildcards."""
    lines = [f"{address}\t{name}" for name in sorted(addresses) for address in addresses[name]]
    return "\n".join([f"# windowbox: {zone}", *lines, f"# windowbox: end of {zone}", ""])


def install(method: Method, target: Target, root: Path) -> Path | None:
    """Write the file, and return its path; None if its content is right already."""
    file, wanted = path(method, target.zone, root), text(method, target)
    found = _content(file)
    if found == wanted:
        return None
    if found is not None and not found.startswith(MARKER):
        raise Refused(f"{file} was not written by windowbox: move it away first")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(wanted)
    except PermissionError as error:
        raise Refused(f"{file} cannot be written: run this with sudo, or see --dry-run") from error
    return file


def installed(root: Path, zone: str | None = None) -> Iterator[tuple[Method, Path]]:
    """The files with our mark: of one zone, or of all."""
    for method, folder in FOLDERS.items():
        place = root / folder
        files = [path(method, zone, root)] if zone else sorted(place.iterdir()) if place.is_dir() else []
        for file in files:
            if (_content(file) or "").startswith(MARKER):
                yield method, file


def remove(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except PermissionError as error:
        raise Refused(f"{file} cannot be removed: run this with sudo") from error


def running_sandbox() -> tuple[str, str]:
    """Zone and server of the sandbox that runs here."""
    folder = state.folder()
    found = state.read(folder)
    if found is None or not found.running() or "named" not in found.ports:
        raise Missing(
            f"no sandbox {folder.name!r} is running: start it with `{state.command('up', folder)}`, "
            "or give --server and --zone"
        )
    return zoneserver.ZONE, f"127.0.0.1:{found.ports['named']}"


def _lines(*lines: str) -> str:
    return "\n".join((MARKER, *lines, ""))


def _content(file: Path) -> str | None:
    try:
        return file.read_text()
    except (FileNotFoundError, IsADirectoryError, UnicodeDecodeError):
        return None
