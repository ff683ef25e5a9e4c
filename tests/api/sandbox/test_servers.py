"""What the servers of a sandbox accept."""

from __future__ import annotations

import subprocess
from pathlib import Path

from sandbox.servers import manifests
from tests.support import servers
from tests.support.servers import ControlPlane


def test_rights_and_kinds_are_applied_idempotently(control_plane: ControlPlane) -> None:
    manifests.apply_all(control_plane.api)


def test_without_a_key_unsigned_updates_are_accepted(tmp_path: Path) -> None:
    servers.need("named")
    with servers.name_server(tmp_path / "named", key=None) as server:
        script = (
            f"server 127.0.0.1 {server.port}\nzone local.gardener.cloud\n"
            "update add open.local.gardener.cloud 60 A 10.0.0.1\nsend\n"
        )
        subprocess.run(["nsupdate"], input=script.encode(), timeout=60, check=True)
