"""Routes to containers, set by this host's `ip`, and routes inside of them, set by the image's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import orjson

from windowbox.clients.docker import Engine
from windowbox.errors import Malformed, Refused, Unreachable
from windowbox.settings.lbsettings import Network
from workers.loadbalancer.envoy import hostnetwork

Routes = Mapping[Network, IPv4Address | IPv6Address]

SCRIPT = "windowbox-network.sh"
_TABLE = "windowbox-network.json"
_LIMIT = 10.0


def parsed(routes: Mapping[str, str]) -> Routes:
    """Routes whose texts came from outside. Malformed if one is none, or leads to the other family."""
    try:
        read = {ip_network(prefix): ip_address(hop) for prefix, hop in routes.items()}
    except ValueError as error:
        raise Malformed(f"routes {dict(routes)}: {error}: give prefix and next hop as addresses") from error
    for prefix, hop in read.items():
        if prefix.version != hop.version:
            raise Malformed(f"route to {prefix} via {hop}: both have to be of one family")
    return read


def script(local: Sequence[Network], routes: Routes) -> str:
    """A shell script that has all `local` prefixes arrive, and sets the routes. It may be repeated.

    It goes on after a failure, tells it, and ends with an error.
    """
    commands = [_ip(prefix, f"replace local {prefix} dev lo") for prefix in local]
    commands += [_ip(prefix, f"replace {prefix} via {hop}") for prefix, hop in routes.items()]
    return "\n".join(["failed=0", *(_noted(c) for c in commands), "exit $failed", ""])


def removal(gone: Sequence[Network]) -> str:
    """A shell script that takes routes away; those that went by themselves are nobody's error."""
    return "\n".join([*(_ip(prefix, f"del {prefix}") + " 2>/dev/null" for prefix in gone), "true", ""])


def _ip(prefix: Network, what: str) -> str:
    return f"ip -{prefix.version} route {what}"


def _noted(command: str) -> str:
    return f'{command} || {{ echo "{command}" >&2; failed=1; }}'


class Inside:
    """The routes in the network of one container, for one edge or for several that share it.

    They are kept in the container's own files, from which it sets them again whenever it is started: a
    restart by the engine, with us away, loses none.
    """

    def __init__(self, engine: Engine, container: str, local: Sequence[Network] = ()) -> None:
        self._engine = engine
        self._container = container
        self._local = local

    async def prepare(self) -> None:
        """For a container that has not been started yet."""
        await self._engine.put(self._container, "/", {SCRIPT: script(self._local, {}).encode()})

    async def set(self, edge: str, routes: Mapping[str, str]) -> None:
        """Have exactly these for the edge; what no other edge needs of the former ones goes."""
        parsed(routes)
        table = await self._table()
        before = _merged(table)
        table = {**table, edge: dict(routes)}
        after = _merged(table)
        if before == after:
            return
        written = script(self._local, after).encode()
        await self._engine.put(self._container, "/", {SCRIPT: written, _TABLE: orjson.dumps(table)})
        gone = removal([prefix for prefix in before if prefix not in after])
        await self._engine.execute(self._container, ["sh", "-c", f"{gone}\nsh /{SCRIPT}"])

    async def repeat(self) -> None:
        """Set all again. Refused, with the reason, if that is impossible."""
        await self._engine.execute(self._container, ["sh", f"/{SCRIPT}"])

    async def _table(self) -> dict[str, dict[str, str]]:
        found = await self._engine.files(self._container, f"/{_TABLE}")
        table: dict[str, dict[str, str]] = orjson.loads(found.get(_TABLE, b"{}"))
        return table


def _merged(table: Mapping[str, Mapping[str, str]]) -> Routes:
    return {prefix: hop for routes in table.values() for prefix, hop in parsed(routes).items()}


async def have_route(prefix: Network, hop: IPv4Address | IPv6Address) -> str | None:
    """Have this host send the prefix to the next hop; else the command that a person has to type."""
    with contextlib.suppress(Refused, Unreachable):
        # Asking needs no rights, and says that nothing is to be done.
        taken = await run_ip("route", "get", str(prefix.network_address))
        if f"via {hop} " in taken:
            return None
    return await _do_or_tell(f"ip -{prefix.version} route replace {prefix} via {hop}")


async def drop_route(prefix: Network) -> None:
    """Take this host's route to the prefix away. That there is none is fine."""
    if os.geteuid() == 0:
        with contextlib.suppress(Refused):
            await run_ip(f"-{prefix.version}", "route", "del", str(prefix))


async def _do_or_tell(command: str) -> str | None:
    if os.geteuid() != 0:
        return f"as root: {command}"
    try:
        await run_ip(*command.split()[1:])
    except Refused as error:
        return f"as root: {command} (tried: {error})"
    return None


async def run_ip(*arguments: str) -> str:
    """This host's `ip`. Refused if it ends with an error."""
    return await hostnetwork.run("ip", *arguments, limit=_LIMIT)
