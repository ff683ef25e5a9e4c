"""A Shoot that is hibernated by the command and woken: its load balancers keep their addresses, and serve."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from commands.cli import cli
from sandbox.nodes.images import ECHO
from sandbox.shoots import hibernation, records, waiting
from tests.host.machines.conftest import NAME, ShootWorld
from tests.support import echoclient
from tests.support.rules import rule
from windowbox.errors import Missing

_SERVICES = "/api/v1/namespaces/default/services"


@pytest.mark.slow
@rule("C-7", "B12-R1")
def test_load_balancers_serve_again_after_waking(world: ShootWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDOWBOX_HOME", str(world.sandbox.folder.parent))
    # The fixture's sandbox runs in this process, where a signal would end it.
    monkeypatch.setattr("sandbox.shoots.creation.detached", lambda folder, state: world.sandbox)
    world.kubectl("create", "deployment", "sleepy", f"--image={ECHO}", "--", "/echo", "--tcp=8080")
    world.kubectl("expose", "deployment", "sleepy", "--type=LoadBalancer", "--port=80", "--target-port=8080")
    service = waiting.until(
        world.api, _SERVICES, "sleepy", lambda one: bool(_address_of(one)), "it has no address", patience=60
    )
    address = _address_of(service)
    echoclient.until(lambda: echoclient.tcp(address, 80, b"hello"))
    [former] = world.api.read("/api/v1/nodes")["items"]
    for _ in range(2):  # the second time there is nothing to do
        assert f"windowbox shoot wake {NAME}" in _said(world, "hibernate", NAME)
    machines = f"/api/v1/namespaces/{world.shoot.machines}/pods"
    assert world.sandbox.api.read(machines)["items"] == []
    assert not [name for name in world.sandbox.state.children if name.startswith(world.shoot.child(""))]
    assert "hibernated" in _said(world, "list")
    assert "✓ API server" in _said(world, "status", NAME)
    for _ in range(2):
        assert "is Running" in _said(world, "wake", NAME)
    answer = echoclient.until(lambda: echoclient.tcp(address, 80, b"hello"))
    assert answer.said == b"hello"
    [latter] = world.api.read("/api/v1/nodes")["items"]
    assert latter["metadata"]["name"] != former["metadata"]["name"]
    assert _address_of(world.api.read(f"{_SERVICES}/sleepy")) == address
    world.kubectl("delete", "service,deployment", "sleepy")


def test_a_shoot_without_a_worker_is_not_hibernated(world: ShootWorld) -> None:
    broken = records.new("broken", ())
    records.write(world.sandbox.folder, broken)
    try:
        with pytest.raises(Missing, match="windowbox shoot delete broken"):
            hibernation.hibernate(world.sandbox, "broken", lambda what, seconds: None)
        assert not records.is_hibernated(world.sandbox.folder, "broken")
    finally:
        records.remove(world.sandbox.folder, "broken")


def _said(world: ShootWorld, *arguments: str) -> str:
    asked = ["shoot", *arguments, "--name", world.sandbox.folder.name]
    done = CliRunner().invoke(cli, asked, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def _address_of(service: dict[str, Any]) -> str:
    ingress = (service.get("status", {}).get("loadBalancer") or {}).get("ingress") or [{}]
    return str(ingress[0].get("ip") or "")
