"""Routes to containers, set by this host's `ip`, and routes inside of containers, set by the image's `ip`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import orjson

from windowbox.clients.docker import Engine
from windowbox.errors import Malformed, Refused, Unreachable
from windowbox.settings.lbsettings import Network
from workers.loadbalancer.links import hostnetwork

Routes = Mapping[Network, IPv4Address | IPv6Address]

SCRIPT = "windowbox-network.sh"
_TABLE = "windowbox-network.json"
_LIMIT = 10.0


def parsed(routes: Mapping[str, str]) -> Routes:
    """Routes from outside. Malformed if one is invalid, or its hop is of the other address family."""
    try:
        read = {ip_network(prefix): ip_address(hop) for prefix, hop in routes.items()}
    except ValueError as error:
        raise Malformed(f"routes {dict(routes)}: {error}: give prefix and next hop as addresses") from error
    for prefix, hop in read.items():
        if prefix.version != hop.version:
            raise Malformed(f"route to {prefix} via {hop}: both have to be of one family")
    return read


def script(local: Sequence[Network], routes: Routes) -> str:
    """A shell script that makes all `local` prefixes local, and sets the routes. Idempotent.

    After a failed command it continues, prints that command, and fails at its end.
    """
    commands = [_ip(prefix, f"replace local {prefix} dev lo") for prefix in local]
    commands += [_ip(prefix, f"replace {prefix} via {hop}") for prefix, hop in routes.items()]
    noted = [f'{command} || {{ echo "{command}" >&2; failed=1; }}' for command in commands]
    return "\n".join(["failed=0", *noted, "exit $failed", ""])


def _ip(prefix: Network, what: str) -> str:
    return f"ip -{prefix.version} route {what}"


class ContainerRoutes:
    """The routes in the network of one container, for one edge or for several that share it.

    The container keeps them in its own files and sets them at each start: they survive a restart by the
    engine while windowbox is down.
    """

    def __init__(self, engine: Engine, container: str, local: Sequence[Network] = ()) -> None:
        self._engine = engine
        self._container = container
        self._local = local

    async def prepare(self) -> None:
        """Put the script into a container that has not been started yet."""
        await self._engine.put(self._container, "/", {SCRIPT: script(self._local, {}).encode()})

    async def set(self, edge: str, routes: Mapping[str, str]) -> None:
        """Have exactly these for the edge. Its former ones are removed unless another edge needs them."""
        parsed(routes)
        found = await self._engine.files(self._container, f"/{_TABLE}")
        table: dict[str, dict[str, str]] = orjson.loads(found.get(_TABLE, b"{}"))
        before = _merged(table)
        table = {**table, edge: dict(routes)}
        after = _merged(table)
        if before == after:
            return
        written = script(self._local, after).encode()
        await self._engine.put(self._container, "/", {SCRIPT: written, _TABLE: orjson.dumps(table)})
        gone = [_ip(prefix, f"del {prefix}") for prefix in before if prefix not in after]
        # Routes that are gone already are no error: the script alone decides the exit code.
        commands = [*(f"{command} 2>/dev/null" for command in gone), f"sh /{SCRIPT}"]
        await self._engine.execute(self._container, ["sh", "-c", "\n".join(commands)])

    async def repeat(self) -> None:
        """Set all again. Refused, with the reason, if that is impossible."""
        await self._engine.execute(self._container, ["sh", f"/{SCRIPT}"])


def _merged(table: Mapping[str, Mapping[str, str]]) -> Routes:
    return {prefix: hop for routes in table.values() for prefix, hop in parsed(routes).items()}


async def have_route(prefix: Network, hop: IPv4Address | IPv6Address) -> str | None:
    """Route the prefix from this host to the next hop. Returns the command for a person if that fails."""
    with contextlib.suppress(Refused, Unreachable):
        # `route get` needs no root, so an existing route needs none, either.
        if f"via {hop} " in await run_ip("route", "get", str(prefix.network_address)):
            return None
    command = f"ip -{prefix.version} route replace {prefix} via {hop}"
    if os.geteuid() != 0:
        return f"as root: {command}"
    try:
        await run_ip(*command.split()[1:])
    except Refused as error:
        return f"as root: {command} (tried: {error})"
    return None


async def drop_route(prefix: Network) -> None:
    """Remove this host's route to the prefix, if there is one."""
    if os.geteuid() == 0:
        with contextlib.suppress(Refused):
            await run_ip(f"-{prefix.version}", "route", "del", str(prefix))


async def run_ip(*arguments: str) -> str:
    """Run this host's `ip`. Refused if it fails."""
    return await hostnetwork.run("ip", *arguments, limit=_LIMIT)
