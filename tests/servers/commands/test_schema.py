"""Processes end where a newer version has filled the bus with what they cannot read."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from bus import streams
from bus.permissions import Role
from bus.schema import Schema
from bus.transport.connection import connected
from tests.support import forked, servers
from tests.support.roles import RoleServer, role_server


@pytest.fixture
def newer(tmp_path: Path) -> Iterator[RoleServer]:
    servers.need("nats-server")
    with role_server(tmp_path) as server:
        yield server


@pytest.mark.parametrize(("command", "role"), [("patch", "patcher"), ("edge", "edge"), ("work", "worker")])
async def test_a_process_that_cannot_read_the_bus_ends_and_says_so(
    newer: RoleServer, tmp_path: Path, command: str, role: Role
) -> None:
    async with connected(newer.access("watcher")) as bus:
        await streams.ensure(bus)
        for name in ("WORK", "OBJECTS", "KV_addresses"):
            config = (await bus.api(f"STREAM.INFO.{name}"))["config"]
            await bus.api(f"STREAM.UPDATE.{name}", {**config, "metadata": Schema(9, 8).metadata})
    file = tmp_path / "settings.yaml"
    access = newer.access(role)
    file.write_text(yaml.safe_dump({"nats": {"url": access.url, "user": role, "password": access.password}}))
    ended = await asyncio.to_thread(
        forked.run,
        *(command, "--settings", str(file)),
        environment=os.environ,
        folder=tmp_path,
        timeout=120,
    )
    assert ended.returncode != 0
    assert "has messages of schema 9, which windowbox with schema 8 or newer reads" in ended.stderr
