"""windowbox as it is deployed, small: a bus, name servers, and one process of each role."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bus import streams, subjects
from bus.messages import RunRecord
from bus.transport import consumers
from bus.transport.connection import connected
from tests.e2e.client import Record
from tests.support import forked, servers
from tests.support.forked import Forked
from tests.support.servers import ControlPlane, NameServer
from windowbox.models.refs import DNSRECORDS, RUNTIME, ObjectRef
from windowbox.settings.bussettings import Access

ROLES = {"watch": "watcher", "work": "worker", "patch": "patcher"}
INNER, KEYED = "inner.local.gardener.cloud", "keyed.test"


@dataclass
class SmallWorld:
    """The processes and the servers around them."""

    plane: ControlPlane
    nats: str
    folder: Path
    named: NameServer
    others: dict[str, NameServer]
    """The name servers of further zones."""
    running: dict[str, Forked] = field(default_factory=dict)

    def start(self, role: str) -> None:
        settings, log = (self.folder / f"{role}.{kind}" for kind in ("yaml", "log"))
        self.running[role] = forked.start(role, "--settings", str(settings), log=log)

    @contextlib.contextmanager
    def settings(self, role: str, section: str, **values: Any) -> Iterator[None]:
        """Other settings for processes that are started meanwhile."""
        file = self.folder / f"{role}.yaml"
        before = file.read_text()
        content = yaml.safe_load(before)
        content[section] |= values
        file.write_text(yaml.safe_dump(content))
        try:
            yield
        finally:
            file.write_text(before)

    def kill(self, role: str) -> None:
        """As if the power failed."""
        self.running[role].kill()

    def alive(self) -> bool:
        return all(process.alive for process in self.running.values())

    def runs(self, record: Record, *, until: Callable[[list[RunRecord]], bool] = bool) -> list[RunRecord]:
        """What the journal tells of an object, once `until` holds of it."""
        return asyncio.run(self._runs(record, until))

    async def _runs(self, record: Record, until: Callable[[list[RunRecord]], bool]) -> list[RunRecord]:
        ref = ObjectRef(RUNTIME, DNSRECORDS.id, record.namespace, record.name)
        subject = subjects.run("dnsrecord", subjects.key(ref))
        found: list[RunRecord] = []
        async with connected(Access(self.nats, name="test")) as bus, asyncio.timeout(60):
            reading = consumers.follow(bus, streams.JOURNAL, [subject], history=True)
            async with contextlib.aclosing(reading):  # type: ignore[type-var]
                async for stored in reading:
                    if stored is not None:
                        found.append(RunRecord.model_validate_json(stored.data))
                    if until(found):
                        return found
        return found


@contextlib.contextmanager
def small_world(
    plane: ControlPlane, folder: Path, named: NameServer, others: dict[str, NameServer], **work: Any
) -> Iterator[SmallWorld]:
    """A world whose workers have the settings `work`."""
    store = folder / "nats"
    store.mkdir(parents=True)
    with servers.nats_server(store) as nats:
        world = SmallWorld(plane, nats, folder, named, others)
        for role, user in ROLES.items():
            settings = _settings(world, user, work)
            (folder / f"{role}.yaml").write_text(yaml.safe_dump(settings))
            world.start(role)
        try:
            yield world
        finally:
            for process in world.running.values():
                process.end()


def _settings(world: SmallWorld, user: str, work: dict[str, Any]) -> dict[str, Any]:
    zones = [_zone(world.named, key=True), _zone(world.others[INNER]), _zone(world.others[KEYED])]
    zones[-1]["key_from_record"] = True
    patience = {"patience": 1, "message_timeout": 2, "probe_interval": 0.5, "drift_interval": 1}
    return {
        "nats": {"url": world.nats},
        "cluster": {"kubeconfig": str(world.plane.kubeconfigs[user])},
        "egress": {"allowed": ["127.0.0.0/8"]},
        "work": {"sweep_interval": 1.0} | work,
        "dns": {"zones": zones} | patience,
    }


def _zone(server: NameServer, *, key: bool = False) -> dict[str, Any]:
    zone: dict[str, Any] = {"name": server.zone, "servers": [server.address]}
    if key and server.key:
        zone["key"] = server.key.settings()
    return zone
