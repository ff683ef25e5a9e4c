"""The servers that all tests build on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import nats

from sandbox.servers import manifests, zoneserver
from tests.support import servers
from tests.support.servers import ControlPlane, NameServer


async def test_a_tests_nats_server_has_jetstream(nats_url: str) -> None:
    client = await nats.connect(nats_url)
    try:
        account = await client.jetstream().account_info()
    finally:
        await client.close()
    assert account.streams == 0


def test_a_control_plane_serves_objects(control_plane: ControlPlane) -> None:
    made = control_plane.api.create("/api/v1/namespaces", {"metadata": {"generateName": "test-"}})
    assert made["metadata"]["name"].startswith("test-")
    assert control_plane.kubeconfig.stat().st_mode & 0o777 == 0o600


def test_rights_and_kinds_are_applied_twice_without_harm(control_plane: ControlPlane) -> None:
    manifests.apply_all(control_plane.api)


def test_a_restarted_name_server_keeps_its_zone(named: NameServer) -> None:
    named.kill()
    named.start()
    assert zoneserver.answers(named.port, "local.gardener.cloud")


def test_without_a_key_anybody_may_update(tmp_path: Path) -> None:
    servers.need("named")
    with servers.name_server(tmp_path / "named", key=None) as server:
        script = (
            f"server 127.0.0.1 {server.port}\nzone local.gardener.cloud\n"
            "update add open.local.gardener.cloud 60 A 10.0.0.1\nsend\n"
        )
        subprocess.run(["nsupdate"], input=script.encode(), timeout=60, check=True)
