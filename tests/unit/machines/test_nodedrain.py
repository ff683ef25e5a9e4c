"""A drain takes a bounded number of a Shoot's objects in one step."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from windowbox.models.objects import Object
from windowbox.models.refs import Resource
from workers.core.owned.targets import TargetCluster
from workers.machines.machine import nodedrain


class Shoot:
    """Lists VolumeAttachments without an end, and notes which are deleted."""

    def __init__(self) -> None:
        self.connection = self.recorder = self
        self.deleted: list[str] = []

    async def api(self) -> Shoot:
        return self

    async def objects(self, _: Resource) -> AsyncIterator[Object]:
        number = 0
        while True:
            number += 1
            node = "mine" if number % 2 else "other"
            yield Object({"metadata": {"name": f"attachment-{number}"}, "spec": {"nodeName": node}})

    async def call(self, _: str, __: object, act: Callable[[], Awaitable[Any]]) -> Any:
        return await act()

    async def remove(self, _: Resource, __: str, name: str) -> bool:
        self.deleted.append(name)
        return True


async def test_a_step_deletes_a_bounded_number_of_volume_attachments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodedrain, "_MOST", 3)
    shoot = Shoot()
    node = Object({"metadata": {"name": "mine"}})
    await nodedrain.NodeDrain(cast("TargetCluster", shoot), node, datetime.now(UTC)).detach()
    assert shoot.deleted == ["attachment-1", "attachment-3", "attachment-5"]
