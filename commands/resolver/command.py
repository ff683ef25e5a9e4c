"""`windowbox resolver`: let every program of this host find the names that windowbox makes."""

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

_server = click.option(
    "--server",
    envvar="DNS_SERVER",
    metavar="HOST:PORT",
    help="The name server. Default: that of the running sandbox.",
)
_zone = click.option(
    "--zone", envvar="DNS_ZONE", help="The zone it knows. Default: that of the running sandbox."
)
_root = click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default="/",
    help="Change the system mounted here, like an image, instead of this one.",
)
_via = click.option(
    "--via",
    type=click.Choice([method.value for method in Method]),
    help="What to set up. Default: what this host uses.",
)
_names = click.option("--name", "names", multiple=True, help="A name to look up (repeat for more).")
_dry_run = click.option("--dry-run", is_flag=True, help="Only print what would be done.")


@click.group()
def resolver() -> None:
    """Let browsers, kubectl and curl on this host find the names that windowbox makes.

    Queries for names in the zone go to windowbox's server; all others to the same resolvers as before.

    \b
    Examples:
      windowbox resolver install --dry-run     see what would be written, and where
      sudo -E windowbox resolver install       write it
      windowbox resolver check                 does it work?
      sudo windowbox resolver remove           remove it again
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
        click.echo(_hosts_lines(target, names))
    elif dry_run:
        click.echo(f"Would write {hosts.path(method, target.zone, root)}:\n")
        click.echo(hosts.text(method, target))
        _explain("Would then run", method, root)
    elif written := hosts.install(method, target, root):
        click.echo(f"Wrote {written}")
        _reload({method}, root)
        click.echo("Next: windowbox resolver check")
    else:
        click.echo(f"{hosts.path(method, target.zone, root)} already says so")


@resolver.command(short_help="Take away what `install` wrote.")
@click.option("--zone", help="Only what was written about this zone. Default: all.")
@_root
@_dry_run
def remove(zone: str | None, root: Path, dry_run: bool) -> None:
    """Remove what `install` wrote, and nothing else. Idempotent.

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
    """Compare the answers of the name server with those that programs on this host get.

    Ends with 1 if they differ. Right after a change that passes: answers are remembered for their TTL.

    \b
    Examples:
      windowbox resolver check
      windowbox resolver check --name web.local.gardener.cloud
    """
    target = _target(server, zone)
    differ = False
    for name in names or (f"ns.{target.zone}",):
        wanted, found = _ask(target, name), _heard(name)
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


def _hosts_lines(target: Target, names: Iterable[str]) -> str:
    chosen = list(names) or [f"ns.{target.zone}"]
    return hosts.hosts_block(target.zone, {name: sorted(_ask(target, name), key=str) for name in chosen})


def _explain(what: str, method: Method, root: Path) -> None:
    for command in hosts.RELOAD[method] if root == Path("/") else ():
        click.echo(f"{what}: {' '.join(command)}")


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
    from windowbox.clients.nameserver.queries import addresses

    where = f"the name server at {target.address} port {target.port}"
    return addresses(str(target.address), target.port, name.rstrip("."), where, target.zone)


def _heard(name: str) -> set[IPAddress]:
    """The addresses that programs on this host get for `name`."""
    found: set[IPAddress] = set()

    def look_up() -> None:
        try:
            answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except OSError:
            return
        found.update(ip_address(address[0]) for *_, address in answers)

    # The C library has no timeout to set; a hanging thread ends with the process.
    thread = Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(10)
    return set(found)


def _listed(addresses: set[IPAddress]) -> str:
    return ", ".join(sorted(map(str, addresses))) or "nothing"
