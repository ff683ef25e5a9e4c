"""The NATS servers of the sandbox, with a user for each role."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bus import permissions
from sandbox import files
from sandbox.children import Child
from sandbox.servers.controlplane import healthy

_LARGEST_MESSAGE = 8 * 1024 * 1024
"""An object in Kubernetes may have 1.5 MiB, and travels with its headers."""


def passwords(path: Path) -> dict[str, str]:
    """The password of each role, and of `windowbox run`, kept in the file at `path`."""
    kept: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    complete: dict[str, str] = {
        role: kept.get(role) or secrets.token_urlsafe(24) for role in (*permissions.PERMISSIONS, "runner")
    }
    if complete != kept:
        files.write_private(path, json.dumps(complete, indent=2))
    return complete


@dataclass(frozen=True)
class Listening:
    """The ports of a NATS server."""

    port: int
    monitor: int
    route: int | None = None
    """Where the other servers of its cluster reach it."""


def names(count: int) -> list[str]:
    """The names of the servers as children of the sandbox."""
    return [_port_name("server", number) for number in range(1, count + 1)]


def port_names(count: int) -> list[str]:
    """Everything on which servers listen, as names of ports."""
    kinds = ("server", "monitor") if count == 1 else ("server", "monitor", "route")
    return [_port_name(kind, number) for number in range(1, count + 1) for kind in kinds]


def urls(count: int, ports: dict[str, int]) -> str:
    """Where clients find the servers."""
    return ",".join(f"nats://127.0.0.1:{ports[name]}" for name in names(count))


def folder(sandbox: Path, name: str, count: int) -> Path:
    """The data of a server. A single server cannot use the data of one of three."""
    return sandbox / "nats" / name if count > 1 else sandbox / "nats"


def nats_servers(
    program: Path,
    sandbox: Path,
    count: int,
    ports: dict[str, int],
    secret: dict[str, str],
    sync_interval: str,
) -> list[Child]:
    """One server, or the servers of a cluster."""
    routes = [ports[_port_name("route", number)] for number in range(1, count + 1)] if count > 1 else []
    found = []
    for number, name in enumerate(names(count), 1):
        place = folder(sandbox, name, count)
        place.mkdir(parents=True, exist_ok=True)
        listening = Listening(
            ports[name], ports[_port_name("monitor", number)], routes[number - 1] if routes else None
        )
        found.append(nats_server(program, place, listening, secret, sync_interval, name=name, routes=routes))
    return found


def nats_server(
    program: Path,
    folder: Path,
    listening: Listening,
    secret: dict[str, str],
    sync_interval: str,
    *,
    name: str = "nats-server",
    routes: Sequence[int] = (),
) -> Child:
    """A NATS server whose store is in `folder`/jetstream; with `routes` it is one of several."""
    configuration = folder / "nats-server.conf"
    content: dict[str, object] = {
        "server_name": name,
        "listen": f"127.0.0.1:{listening.port}",
        "http": f"127.0.0.1:{listening.monitor}",
        "max_payload": _LARGEST_MESSAGE,
        "jetstream": {"store_dir": str(folder), "sync_interval": sync_interval},
        "authorization": {"users": permissions.users(secret, clustered=bool(routes))},
    }
    if routes:
        content["cluster"] = {
            "name": "windowbox-sandbox",
            "listen": f"127.0.0.1:{listening.route}",
            "routes": [f"nats://127.0.0.1:{port}" for port in routes],
        }
    # The configuration language of nats-server contains JSON.
    files.write_private(configuration, json.dumps(content, indent=2))
    return Child(
        name,
        [str(program), "--config", str(configuration)],
        ready=lambda: healthy(f"http://127.0.0.1:{listening.monitor}/healthz"),
        port=listening.port,
    )


def _port_name(kind: str, number: int) -> str:
    return f"nats-{kind}" if number == 1 else f"nats-{kind}-{number}"
