"""A cluster that has joined, and whose API server hangs, holds up its own Services alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.loadbalancer.manyshoots import ManyShoots, Shoot, many_shoots
from tests.support.natsserver import NatsServer
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from windowbox.models.refs import SERVICES

MANY = 64
SOON = 30.0
"""Seconds. In 16 slots, each for 15 s, so many at a cluster that hangs would take 60 s."""


async def test_services_of_others_are_served_while_a_member_hangs(
    plane: ControlPlane, nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its Services stay behind: other tests of load balancers must not find them.
    # The simulator speaks plain HTTP: reading all authorities of the world would be the longest part.
    monkeypatch.setenv("SSL_CERT_FILE", str(plane.api.ca.certificate))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    ranges = [{"prefixes": ["127.71.0.0/24"]}]
    async with many_shoots(plane, nats, tmp_path, 2, 1, ranges=ranges) as many, many.world.worker():
        hanging, other = many.shoots
        for shoot in many.shoots:
            await many.create(shoot)
        await eventually(lambda: _has_addresses(many, hanging, 1))
        await eventually(lambda: _has_addresses(many, other, 1))
        many.simulator.hang(hanging.name)
        await _add_services(many, hanging, MANY)
        await _add_services(many, other, 4)
        await eventually(lambda: _has_addresses(many, other, 5), SOON)
        assert await _has_addresses(many, hanging, 1)


async def _add_services(many: ManyShoots, shoot: Shoot, count: int) -> None:
    async with many.api(shoot) as api:
        for number in range(count):
            body = {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": f"more-{number}"},
                "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
            }
            await api.create(SERVICES, "default", body)


async def _has_addresses(many: ManyShoots, shoot: Shoot, count: int) -> bool:
    found = {place: address for place, address in (await many.addresses()).items() if place[0] == shoot.name}
    return len(found) == count
