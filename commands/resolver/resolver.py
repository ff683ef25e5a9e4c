"""`windowbox resolver`: let every program of this host resolve the names of the zone."""

from __future__ import annotations

import platform
import socket
import subprocess
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from threading import Thread

import click

from commands.resolver import hosts
from commands.resolver.hosts import IPAddress, Method, Target
from windowbox.clients.nameserver.resolver import addresses

_server = click.option(
    "--server",
    envvar="DNS_SERVER",
    metavar="HOST:PORT",
    help="The name server. Default: that of the running sandbox.",
)
_zone = click.option("--zone", envvar="DNS_ZONE", help="Its zone. Default: that of the running sandbox.")
_root = click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default="/",
    help="Change the file system mounted here, such as an image, instead of this host's.",
)
_via = click.option(
    "--via",
    type=click.Choice([method.value for method in Method]),
    help="Resolver to set up. Default: the one of this host.",
)
_names = click.option("--name", "names", multiple=True, help="A name to look up; repeatable.")
_dry_run = click.option("--dry-run", is_flag=True, help="Only print the changes.")


@click.group()
def resolver() -> None:
    """Let browsers, kubectl and curl on this host resolve the names of windowbox's zone.

    Queries for names in the zone go to windowbox's server; all others to the same resolvers as before.

    \b
    Examples:
      windowbox resolver install --dry-run     see what would be written, and where
      sudo -E windowbox resolver install       write it
      windowbox resolver check                 does it work?
      sudo windowbox resolver remove           remove it
    """


@resolver.command(short_help="Set this host up.")
@_server
@_zone
@_via
@_names
@_root
@_dry_run
def install(
    server: str | None, zone: str | None, via: str | None, names: tuple[str, ...], root: Path, dry_run: bool
) -> None:
    """Send queries for the zone to the name server. Idempotent.

    \b
    --via systemd   a drop-in for systemd-resolved (version 246 or later)
    --via macos     a file in /etc/resolver; dig and nslookup do not read it, all others do
    --via dnsmasq   a file for dnsmasq
    --via hosts     prints lines to paste into /etc/hosts, for the names given with --name

    \b
    Examples:
      windowbox resolver install --dry-run
      windowbox resolver install --via hosts --name api.local.gardener.cloud
      sudo windowbox resolver install --server 127.0.0.1:5300 --zone local.gardener.cloud
    """
    target = _target(server, zone)
    method = Method(via) if via else hosts.fitting(platform.system(), root)
    if method is Method.HOSTS:
        click.echo("Paste this into /etc/hosts (this host has nothing that could ask one server per zone):\n")
        chosen = {name: sorted(_ask(target, name), key=str) for name in names or (f"ns.{target.zone}",)}
        click.echo(hosts.hosts_block(target.zone, chosen))
    elif dry_run:
        click.echo(f"Would write {hosts.path(method, target.zone, root)}:\n")
        click.echo(hosts.text(method, target))
        for command in hosts.RELOAD[method] if root == Path("/") else ():
            click.echo(f"Would then run: {' '.join(command)}")
    elif written := hosts.install(method, target, root):
        click.echo(f"Wrote {written}")
        _reload({method}, root)
        click.echo("Next: windowbox resolver check")
    else:
        click.echo(f"{hosts.path(method, target.zone, root)} already says so")


@resolver.command(short_help="Remove the files of `install`.")
@click.option("--zone", help="Only the files of this zone. Default: all.")
@_root
@_dry_run
def remove(zone: str | None, root: Path, dry_run: bool) -> None:
    """Remove the files that `install` wrote, and no others. Idempotent.

    \b
    Example:
      sudo windowbox resolver remove
    """
    found = list(hosts.installed(root, zone))
    for _, file in found:
        if not dry_run:
            hosts.remove(file)
        click.echo(f"{'Would remove' if dry_run else 'Removed'} {file}")
    if not found:
        click.echo("Nothing to remove")
    elif not dry_run:
        _reload({method for method, _ in found}, root)


@resolver.command(short_help="Check whether it works.")
@_server
@_zone
@_names
@click.pass_context
def check(context: click.Context, server: str | None, zone: str | None, names: tuple[str, ...]) -> None:
    """Compare the answers of the name server with the addresses that programs on this host get.

    Ends with 1 if they differ. A difference right after a change passes: resolvers cache answers for their
    TTL.

    \b
    Examples:
      windowbox resolver check
      windowbox resolver check --name web.local.gardener.cloud
    """
    target = _target(server, zone)
    differ = False
    for name in names or (f"ns.{target.zone}",):
        wanted, found = _ask(target, name), _resolved_here(name)
        differ |= wanted != found
        verdict = "ok" if wanted == found else "differs"
        click.echo(f"{name}: {verdict}\n  server: {_listed(wanted)}\n  host:   {_listed(found)}")
    if differ:
        click.echo("Next: windowbox resolver install --dry-run")
        context.exit(1)


def _target(server: str | None, zone: str | None) -> Target:
    if server is None or zone is None:
        of_sandbox = hosts.running_sandbox()
        zone, server = zone or of_sandbox[0], server or of_sandbox[1]
    return hosts.target(zone, server)


def _reload(methods: Iterable[Method], root: Path) -> None:
    """Make running resolvers read the files again; where that fails, print the command."""
    for command in [command for method in methods for command in hosts.RELOAD[method]]:
        if root != Path("/"):
            return
        try:
            subprocess.run(command, check=True, timeout=30, capture_output=True)
        except (OSError, subprocess.SubprocessError) as error:
            click.echo(f"Run yourself: sudo {' '.join(command)} ({error})", err=True)


def _ask(target: Target, name: str) -> set[IPAddress]:
    """The addresses of `name` from the name server."""
    where = f"the name server at {target.address} port {target.port}"
    return addresses(str(target.address), target.port, name.rstrip("."), where, target.zone)


def _resolved_here(name: str) -> set[IPAddress]:
    """The addresses that programs on this host get for `name`."""
    found: set[IPAddress] = set()

    def look_up() -> None:
        try:
            answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except OSError:
            return
        found.update(ip_address(address[0]) for *_, address in answers)

    # getaddrinfo of the C library has no timeout. A daemon thread that hangs ends with the process.
    thread = Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(10)
    return set(found)


def _listed(addresses: set[IPAddress]) -> str:
    return ", ".join(sorted(map(str, addresses))) or "nothing"
