"""How often ports are tried while no Envoy serves them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandbox import processes
from tests.servers.envoy.world import balancer, configured
from tests.unit.envoy.test_delta import Envoy
from windowbox.models.loadbalancers import Listener
from workers.loadbalancer.envoy.discovery import Session
from workers.loadbalancer.envoy.readiness import ApplyTracker


async def test_refused_connections_are_tried_again_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts, connect = list[str](), asyncio.open_connection

    async def counted(host: str, port: int) -> Any:
        attempts.append(host)
        return await connect(host, port)

    monkeypatch.setattr(asyncio, "open_connection", counted)
    nobody = balancer(Listener("127.0.0.1", processes.free_port(), "TCP"))
    session = Session("edge/1")
    envoy = Envoy(session.delta)
    session.want(configured([nobody]).resources())
    envoy.run()
    running: Any = object()
    tracker = ApplyTracker(lambda: running, lambda: session)
    [applied] = [one async for one in tracker.wait_applied([nobody], 1.0, {})]
    assert "cannot connect" in str(applied.problems)
    # The pauses double up to a tenth of a second; without them, there are thousands of attempts.
    assert 2 <= len(attempts) <= 20
