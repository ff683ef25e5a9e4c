"""Worker processes that are killed in turn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.support import forked
from tests.support.forked import Forked
from tests.support.kindworld import KindWorld


@dataclass
class Workers:
    world: KindWorld
    folder: Path
    pools: tuple[str, ...]
    running: list[Forked] = field(default_factory=list)
    kills: int = 0

    def start(self) -> None:
        settings = self.folder / "work.yaml"
        content = {
            "nats": {"url": self.world.nats.url},
            "cluster": {"kubeconfig": str(self.world.plane.kubeconfigs["worker"])},
            "work": {"ack_wait": 2.0, "sweep_interval": 1.0},
            "join": {"enabled": False},
        }
        settings.write_text(yaml.safe_dump(content))
        pools = [f"--pool={pool}" for pool in self.pools]
        log = self.folder / f"work-{self.kills}-{len(self.running)}.log"
        self.running.append(forked.start("work", *pools, "--settings", str(settings), log=log))

    def kill(self) -> None:
        """The oldest one dies where it stands, and another one starts."""
        self.running.pop(0).kill()
        self.kills += 1
        self.start()


@asynccontextmanager
async def working(world: KindWorld, folder: Path, *pools: str, count: int = 1) -> AsyncIterator[Workers]:
    workers = Workers(world, folder, pools)
    for _ in range(count):
        workers.start()
    try:
        yield workers
    finally:
        for one in workers.running:
            one.end()
