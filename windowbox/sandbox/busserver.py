"""The NATS server of the sandbox, with a user for each role."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

from bus import permissions
from windowbox.sandbox import files
from windowbox.sandbox.children import Child
from windowbox.sandbox.controlplane import healthy

_LARGEST_MESSAGE = 8 * 1024 * 1024
"""An object in Kubernetes may have 1.5 MiB, and travels with its headers."""


def passwords(path: Path) -> dict[str, str]:
    """The password of each role, kept in the file at `path`."""
    kept: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    complete: dict[str, str] = {
        role: kept.get(role) or secrets.token_urlsafe(24) for role in permissions.PERMISSIONS
    }
    if complete != kept:
        files.write_private(path, json.dumps(complete, indent=2))
    return complete


def nats_server(
    program: Path, folder: Path, port: int, monitor: int, secret: dict[str, str], sync_interval: str
) -> Child:
    """A NATS server whose store is in `folder`/jetstream."""
    configuration = folder / "nats-server.conf"
    # JSON is a dialect of what nats-server reads.
    files.write_private(
        configuration,
        json.dumps(
            {
                "server_name": "windowbox-sandbox",
                "listen": f"127.0.0.1:{port}",
                "http": f"127.0.0.1:{monitor}",
                "max_payload": _LARGEST_MESSAGE,
                "jetstream": {"store_dir": str(folder), "sync_interval": sync_interval},
                "authorization": {"users": permissions.users(secret)},
            },
            indent=2,
        ),
    )
    return Child(
        "nats-server",
        [str(program), "--config", str(configuration)],
        ready=lambda: healthy(f"http://127.0.0.1:{monitor}/healthz"),
        port=port,
    )
