"""The Lease by which Gardener knows that everything is well, renewed by real processes or not at all."""

from __future__ import annotations

import contextlib
import itertools
import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from bus import recordings, subjects
from bus.messages import Reason, Wish
from bus.recordings import Header
from bus.transport.connection import connected
from bus.workqueue.queue import Queue
from tests.support import forked
from tests.support.forked import Forked
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.running import eventually, soon
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes import bulkhead, kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Missing
from windowbox.models.objects import Object
from windowbox.models.refs import BASTIONS, HEARTBEATS, RUNTIME, ObjectRef
from windowbox.settings.bussettings import Access, Deciding
from windowbox.settings.kindsettings import HeartbeatSettings, KindSettings
from workers import replay
from workers.kinds.heartbeat import heartbeatpool

NAME = "gardener-extension-heartbeat"
INTERVAL = 1
ROLES = {"watch": "watcher", "work": "worker", "patch": "patcher"}


def hasten() -> None:
    """A pool is stuck after four intervals: nothing here waits for a slow cluster."""
    bulkhead.BUDGET = heartbeatpool._MARGIN = 0.0


PROCESSES = ("watch", "patch", "work.1", "work.2", "work.3")


@dataclass
class Deployment:
    """Processes that renew a Lease every second."""

    plane: ControlPlane
    nats: NatsServer
    folder: Path
    namespace: str
    running: dict[str, Forked] = field(default_factory=dict)

    def run_all(self) -> None:
        """Whatever a test has done to them, all of them run."""
        for name in PROCESSES:
            if name not in self.running:
                self.start(name)
            self.running[name].send(signal.SIGCONT)

    def start(self, name: str) -> None:
        """A process; what stands before the dot of its name is its role."""
        role = name.partition(".")[0]
        pools = ["--pool", "heartbeat"] if role == "work" else []
        settings = self.folder / f"{role}.yaml"
        settings.write_text(yaml.safe_dump(self._settings(role)))
        arguments = (role, *pools, "--settings", str(settings))
        self.running[name] = forked.start(*arguments, log=self.folder / f"{name}.log", first=hasten)

    def send(self, number: signal.Signals, role: str) -> None:
        for name, process in self.running.items():
            if name.startswith(role):
                process.send(number)

    def kill(self, name: str) -> None:
        self.running.pop(name).kill()

    def _settings(self, role: str) -> dict[str, Any]:
        return {
            "nats": {"url": self.nats.url},
            "cluster": {"kubeconfig": str(self.plane.kubeconfigs[ROLES[role]])},
            "work": {"ack_wait": 2.0},
            "heartbeat": {"namespace": self.namespace, "interval": INTERVAL},
        }


@dataclass
class Beating:
    """A deployment, and an administrator who looks at its Lease."""

    deployment: Deployment
    kube: Kube

    @property
    def namespace(self) -> str:
        return self.deployment.namespace

    @property
    def nats(self) -> NatsServer:
        return self.deployment.nats

    async def lease(self) -> Object | None:
        with contextlib.suppress(Missing):
            return await self.kube.get(HEARTBEATS, self.namespace, NAME)
        return None

    async def until_beating(self) -> Object:
        """The Lease, once it has been renewed since now."""
        since = datetime.now(UTC)

        async def look() -> Object | None:
            found = await self.lease()
            return found if found and renewed(found) > since else None

        found = await eventually(look, patience=60)
        assert found
        return found

    async def until_run_out(self) -> None:
        """Wait until the Lease has not been renewed for thrice the time that it lasts."""

        async def look() -> bool:
            found = await self.lease()
            assert found
            return datetime.now(UTC) - renewed(found) > timedelta(seconds=3 * INTERVAL)

        await eventually(look, patience=60)


def renewed(lease: Object) -> datetime:
    return datetime.fromisoformat(lease.spec["renewTime"])


@pytest.fixture(scope="module")
def deployment(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One for all tests here: five processes cost as many seconds of CPU."""
    folder, namespace = tmp_path_factory.mktemp("heartbeat"), f"extension-{uuid.uuid4().hex[:8]}"
    plane.api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    nats = NatsServer(folder / "nats")
    nats.start()
    made = Deployment(plane, nats, folder, namespace)
    try:
        with ended(made.running):
            yield made
    finally:
        nats.stop()


@pytest_asyncio.fixture
async def beating(deployment: Deployment) -> AsyncIterator[Beating]:
    deployment.run_all()
    async with kube.from_file(deployment.plane.kubeconfig) as api:
        yield Beating(deployment, api)


@contextlib.contextmanager
def ended(running: dict[str, Forked]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in running.values():
            process.send(signal.SIGCONT)
            process.end()


@rule("HB-1", "A.14")
async def test_the_lease_equals_that_of_the_contract(beating: Beating) -> None:
    found = await beating.until_beating()
    assert found.raw["apiVersion"] == "coordination.k8s.io/v1"
    assert found.raw["kind"] == "Lease"
    assert (found.name, found.namespace) == (NAME, beating.namespace)
    spelled = renewed(found).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert found.spec == {
        "holderIdentity": "provider-local",
        "leaseDurationSeconds": INTERVAL,
        "renewTime": spelled,
    }
    assert not found.labels
    assert not found.annotations
    assert not found.finalizers


@rule("HB-1")
async def test_three_workers_renew_it_once_for_each_interval(beating: Beating) -> None:
    first = await beating.until_beating()
    times = [renewed(first)]

    async def watch() -> None:
        watched = beating.kube.watch(HEARTBEATS, first.resource_version, only=NAME)
        async with contextlib.aclosing(watched):  # type: ignore[type-var]
            async for events in watched:
                seen = [Object(event.object) for event in events if event.type == "MODIFIED"]
                times.extend(renewed(one) for one in seen if one.namespace == beating.namespace)
                if len(times) >= 6:
                    return

    await soon(watch())
    between = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert min(between) >= timedelta(seconds=INTERVAL)


@rule("HB-2", "B.30")
async def test_the_lease_expires_while_workers_are_frozen(beating: Beating) -> None:
    await beating.until_beating()
    beating.deployment.send(signal.SIGSTOP, "work")
    await beating.until_run_out()
    beating.deployment.send(signal.SIGCONT, "work.2")
    await beating.until_beating()


@pytest.mark.long  # the patcher is killed in the next one
@rule("HB-2")
async def test_the_lease_expires_while_the_watcher_is_killed(beating: Beating) -> None:
    await beating.until_beating()
    beating.deployment.kill("watch")
    await beating.until_run_out()
    beating.deployment.start("watch")
    await beating.until_beating()


@rule("HB-2")
async def test_the_lease_expires_while_the_patcher_is_killed(beating: Beating) -> None:
    await beating.until_beating()
    beating.deployment.kill("patch")
    await beating.until_run_out()
    beating.deployment.start("patch")
    await beating.until_beating()


@pytest.mark.parametrize(
    "forgets",
    [
        pytest.param(False, id="HB-2-and-remembers", marks=pytest.mark.long),
        pytest.param(True, id="HB-2-and-has-forgotten"),
    ],
)
async def test_the_lease_expires_while_the_bus_is_away(beating: Beating, forgets: bool) -> None:
    await beating.until_beating()
    if forgets:
        beating.nats.wipe()
    else:
        beating.nats.stop()
    await beating.until_run_out()
    beating.nats.start()
    await beating.until_beating()


@rule("HB-2")
async def test_the_lease_expires_while_work_is_left_undone(beating: Beating) -> None:
    await beating.until_beating()
    key = subjects.key(ObjectRef(RUNTIME, BASTIONS.id, "shoot--t--none", "nobody"))
    async with connected(Access(beating.nats.url)) as bus:
        await Queue(bus, "bastion").wish(key, Wish(reason=Reason.EVENT))
        await beating.until_run_out()
        await bus.purge("TRIGGERS", subjects.wish("bastion", ">"))
        await beating.until_beating()


async def test_a_changed_or_deleted_lease_is_restored(beating: Beating) -> None:
    await beating.until_beating()
    await beating.kube.merge(HEARTBEATS, beating.namespace, NAME, {"spec": {"holderIdentity": "somebody"}})

    async def right() -> bool:
        found = await beating.lease()
        return found is not None and found.spec["holderIdentity"] == "provider-local"

    await eventually(right)
    await beating.kube.delete(HEARTBEATS, beating.namespace, NAME)
    await beating.until_beating()


@rule("HB-1", "HB-2")
async def test_a_lease_from_the_future_is_renewed_now(beating: Beating) -> None:
    await beating.until_beating()
    ahead = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    await beating.kube.merge(HEARTBEATS, beating.namespace, NAME, {"spec": {"renewTime": ahead}})

    async def of_today() -> bool:
        found = await beating.lease()
        return found is not None and renewed(found) <= datetime.now(UTC)

    await eventually(of_today)


async def test_recorded_beats_do_the_same_again(beating: Beating) -> None:
    began = datetime.now(UTC)
    for _ in range(2):
        await beating.until_beating()
    # Further beats would push what these have read off the bus while it is recorded.
    beating.deployment.send(signal.SIGSTOP, "work")
    lease = HeartbeatSettings(namespace=beating.namespace, interval=INTERVAL)
    settings = Deciding(kinds=KindSettings(heartbeat=lease))
    header = Header(recording=1, version="now", since=began, until=datetime.now(UTC), settings=settings)
    async with connected(Access(beating.nats.url, name="recorder")) as bus:
        recording = await recordings.recorded(bus, header, ["heartbeat"])
    result = await replay.replayed(recording)
    assert result.differences == []
    assert result.replayed >= 2
