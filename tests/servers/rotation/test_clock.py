"""The time of runs is the API server's, whatever the clock of this machine says."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from aiohttp import web

from bus.messages import Reason, Wish
from bus.workqueue.pool import DeliveryHold, Item
from sandbox import files
from tests.support import apiservers, loopback, webserver
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.clients.kubernetes.serverclock import ServerClock
from windowbox.models.refs import NAMESPACES
from workers.core import clock
from workers.core.recorder_live import LiveRecorder

TOP = Path(__file__).parents[3]
GENEROUS = timedelta(seconds=60)


class Cluster(NamedTuple):
    """The kubeconfig of an API server with another time, and the paths that it was asked for."""

    kubeconfig: str
    asked: list[str]


@contextlib.asynccontextmanager
async def served(ahead: timedelta, date: str = "", status: int = 200) -> AsyncIterator[Cluster]:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        shown = date or format_datetime(datetime.now(UTC) + ahead, usegmt=True)
        content = {"gitVersion": "v1.34.0", "metadata": {"name": "kube-system", "uid": "1"}}
        return web.json_response(content, status=status, headers={"Date": shown})

    identity = webserver.identity()
    async with webserver.serving(web.get("/{any:.*}", answer), tls=identity.tls) as url:
        yield Cluster(apiservers.kubeconfig(url, "one", identity.authority), asked)


async def time_of_run(client: Kube) -> datetime:
    clusters = cast(Any, SimpleNamespace(runtime=client))
    item = Item("key", Wish(reason=Reason.EVENT), 1, 1, DeliveryHold(60))
    found = await clock.now(LiveRecorder(cast(Any, None), clusters, item))
    assert [(call.door, call.answer) for call in item.calls] == [("clock", found.isoformat())]
    return found


@pytest.mark.parametrize("minutes", [-5, 5, 40 * 24 * 60])
async def test_a_run_has_the_time_of_the_api_server(tmp_path: Path, minutes: int) -> None:
    """A worker that is five minutes ahead would drain by force, and declare machines Failed."""
    ahead = timedelta(minutes=minutes)
    async with served(ahead) as cluster:
        files.write_private(tmp_path / "kubeconfig", cluster.kubeconfig)
        async with kube.from_file(tmp_path / "kubeconfig", moves=False) as client:
            for _ in range(3):
                assert abs(await time_of_run(client) - datetime.now(UTC) - ahead) < GENEROUS
    assert cluster.asked == ["/one/version"]


async def test_answers_that_are_needed_anyway_show_the_time(tmp_path: Path) -> None:
    ahead = timedelta(hours=-1)
    async with served(ahead, status=403) as cluster:
        files.write_private(tmp_path / "kubeconfig", cluster.kubeconfig)
        async with kube.from_file(tmp_path / "kubeconfig", moves=False) as client:
            with pytest.raises(Exception, match="403"):
                await client.get(NAMESPACES, "", "default")
            assert abs(await client.now() - datetime.now(UTC) - ahead) < GENEROUS
    assert cluster.asked == ["/one/api/v1/namespaces/default"]


async def test_the_server_of_a_tenant_sets_no_clock() -> None:
    async with (
        served(timedelta(days=3650)) as cluster,
        kube.from_text(cluster.kubeconfig.encode(), "one", loopback.EGRESS) as client,
    ):
        await client.version()
        assert abs(await client.now() - datetime.now(UTC)) < GENEROUS


@pytest.mark.parametrize("date", ["soon", "Mon, 99 Feb 2026 10:00:00 GMT"])
async def test_an_unreadable_date_is_ignored(tmp_path: Path, date: str) -> None:
    async with served(timedelta(), date) as cluster:
        files.write_private(tmp_path / "kubeconfig", cluster.kubeconfig)
        async with kube.from_file(tmp_path / "kubeconfig", moves=False) as client:
            for _ in range(2):
                assert abs(await client.now() - datetime.now(UTC)) < GENEROUS
    assert cluster.asked == ["/one/version"]


def test_a_clock_that_may_be_right_is_not_corrected() -> None:
    """The header has whole seconds."""
    found = ServerClock()
    before = found.now() - datetime.now(UTC)
    for second in (0, 1):
        shown = datetime.now(UTC) - timedelta(seconds=second)
        found.learn(format_datetime(shown, usegmt=True), time.monotonic() - 1)
    assert abs(found.now() - datetime.now(UTC) - before) < timedelta(milliseconds=100)


WALL_CLOCKS = {
    "bus/transport/connection.py": "measures how far the server's clock is from it",
    "bus/workqueue/pool.py": "the journal shows it",
    "patchers/directwrites.py": "the journal shows it",
    "clouds/frame/operator/faults.py": "the end of a fault, which the operator's machine has set",
    "webhooks/journal.py": "the journal shows it",
    "windowbox/clients/kubernetes/kube.py": "the clock of a tenant's server is not trusted",
    "windowbox/clients/kubernetes/leaderelection.py": "candidates only compare whether it has changed",
    "windowbox/clients/kubernetes/serverclock.py": "what it was before the first answer",
    "windowbox/clients/nameserver/tsig.py": "signatures hold it; errors tell how far the clocks differ",
    "windowbox/settings/imagevector.py": "authorities of files that the operator writes",
    "windowbox/telemetry/tracing.py": "spans show it",
    "workers/core/cloudfaults.py": "the end of a fault, which the operator's machine has set",
    "workers/kinds/backups/retentions.py": "the age of files, whose times are of this machine",
    "workers/replay.py": "reports of a replay are recorded without it",
    "workers/loadbalancer/edge/reporter.py": "the state of an edge shows it",
    "workers/loadbalancer/ipam/addressclaims.py": "the order of those who wait for an address",
    "workers/loadbalancer/ipam/allocator.py": "the order of those who wait for an address",
    "workers/loadbalancer/ipam/store.py": "it is made later than any that is known",
    "workers/loadbalancer/service/upkeep.py": "requests runs, which decide by `clock.now`",
}
"""The modules that read the clock of this machine, and what for: nothing that others' timestamps decide."""


def test_the_clock_of_this_machine_is_read_where_it_decides_nothing() -> None:
    reads = re.compile(r"datetime\.now\(|utcnow\(|[^_.\w]time\.time(_ns)?\(")
    parts = ("bus", "clouds", "patchers", "watchers", "webhooks", "windowbox", "workers")
    modules = (path for part in parts for path in (TOP / part).rglob("*.py"))
    found = {str(path.relative_to(TOP)) for path in modules if reads.search(path.read_text())}
    assert found == WALL_CLOCKS.keys()
