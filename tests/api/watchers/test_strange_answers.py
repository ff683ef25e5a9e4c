"""What objects and servers of tenants may look like, and that nobody else is harmed by it."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from bus import streams, subjects
from bus.clusters.registry import Member
from bus.messages import Announcement
from bus.transport.connection import Bus
from sandbox.programs import binaries
from tests.api.watchers.conftest import Records, knows
from tests.api.watchers.test_mirror import mirror
from tests.api.watchers.test_watching import RECORDS, Watcher, watcher
from tests.support import servers
from tests.support.running import eventually, running, soon
from tests.support.servers import ControlPlane
from windowbox.models.refs import DNSRECORDS


@dataclass
class Stranger:
    """A server that is no Kubernetes API, and answers what it is told to."""

    listing: str
    line: str
    kubeconfig: Path
    watched: list[str] = field(default_factory=list)


@contextlib.asynccontextmanager
async def stranger(folder: Path, listing: str, line: str) -> AsyncIterator[Stranger]:
    made = Stranger(listing, line, folder / "stranger.kubeconfig")

    async def answer(request: web.Request) -> web.Response:
        if "watch" not in request.query:
            return web.Response(text=made.listing)
        made.watched.append(request.path)
        return web.Response(text=made.line + "\n")

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    made.kubeconfig.write_text(
        yaml.safe_dump(
            {
                "clusters": [{"name": "a", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "a", "user": {"token": "t"}}],
                "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
                "current-context": "a",
            }
        )
    )
    try:
        yield made
    finally:
        await runner.cleanup()


EMPTY = '{"metadata": {"resourceVersion": "1"}, "items": []}'
OBJECTS = {
    "a-number": "5",
    "nothing": "{}",
    "a-list-as-metadata": '{"metadata": []}',
    "a-number-as-version": '{"metadata": {"resourceVersion": 7}}',
    "a-header-in-the-uid": '{"metadata": {"resourceVersion": "1", "uid": "a\\r\\nb: c"}}',
    "a-list-as-annotations": '{"metadata": {"resourceVersion": "1", "annotations": [5]}}',
    "words-as-generation": '{"metadata": {"resourceVersion": "1", "generation": "x"}}',
}


@pytest.mark.parametrize(
    "listing",
    [
        pytest.param("<html>", id="a-web-page"),
        pytest.param("[]", id="a-list"),
        pytest.param('{"metadata": 5}', id="a-number-as-metadata"),
        pytest.param('{"items": {"a": 1}}', id="a-mapping-as-items"),
        *(pytest.param(f'{{"items": [{one}]}}', id=f"item-{name}") for name, one in OBJECTS.items()),
    ],
)
async def test_a_listing_of_no_kubernetes_api_disturbs_no_other_cluster(
    bus: Bus, records: Records, tmp_path: Path, listing: str
) -> None:
    async with (
        stranger(tmp_path, listing, "") as server,
        watcher(bus, records.kube, files={"strange": server.kubeconfig}) as one,
    ):
        await one.registry.join(Member(id="strange", kinds=(DNSRECORDS.id,), file=str(server.kubeconfig)))
        await one.reaches("broken", f"strange/{DNSRECORDS.id}")
        assert "not from a Kubernetes API" in one.state(f"strange/{DNSRECORDS.id}")
        await _all_is_well(one, bus, records)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("5", id="a-number"),
        pytest.param("{}", id="nothing"),
        pytest.param('{"type": "ERROR", "object": {"code": "x"}}', id="words-as-code"),
        pytest.param('{"type": 5, "object": {"metadata": {"resourceVersion": "1"}}}', id="a-type"),
        *(
            pytest.param(f'{{"type": "ADDED", "object": {one}}}', id=f"object-{name}")
            for name, one in OBJECTS.items()
        ),
    ],
)
async def test_words_of_no_kubernetes_api_disturb_no_other_cluster(
    bus: Bus, records: Records, tmp_path: Path, line: str
) -> None:
    async with (
        stranger(tmp_path, EMPTY, line) as server,
        watcher(bus, records.kube, files={"strange": server.kubeconfig}) as one,
    ):
        await one.registry.join(Member(id="strange", kinds=(DNSRECORDS.id,), file=str(server.kubeconfig)))

        await eventually(lambda: len(server.watched) > 1)
        await _all_is_well(one, bus, records)


async def _all_is_well(one: Watcher, bus: Bus, records: Records) -> None:
    await one.reaches("watching", RECORDS)
    await records.create("web")
    await eventually(lambda: knows(bus, records.ref("web"), "ADDED", "10.0.0.1"))


@pytest.mark.parametrize("depth", [260, 1100], ids=["deeper-than-written", "deeper-than-read"])
async def test_an_object_that_is_nested_too_deep_stops_no_other(
    bus: Bus, control_plane: ControlPlane, records: Records, depth: int
) -> None:
    live = mirror(bus, records.kube)
    async with running(live.run()):
        await soon(live.listed.wait())
        await _deep(control_plane, records, depth)
        await records.create("web")
        await eventually(lambda: knows(bus, records.ref("web"), "ADDED", "10.0.0.1"))
        await eventually(lambda: knows(bus, records.ref("deep"), "ADDED", "10.0.0.1"))
    stored = await bus.last(streams.OBJECTS, subjects.seen(records.ref("deep")))
    assert stored
    assert set(Announcement(stored).object().spec["providerConfig"]) == {"a"}
    again = mirror(bus, records.kube)
    async with running(again.run()):
        await soon(again.listed.wait())
    assert (await records.kube.get(DNSRECORDS, records.namespace, "deep")).spec["values"] == ["10.0.0.1"]
    await records.delete("deep")


async def _deep(plane: ControlPlane, records: Records, depth: int) -> None:
    """A DNSRecord, made by kubectl, which can write what we cannot."""
    if reason := servers.missing("kubectl"):
        pytest.skip(reason)
    nested = '{"a":' * depth + '"end"' + "}" * depth
    spec = '"type": "local", "name": "deep.local.gardener.cloud", "recordType": "A", "values": ["10.0.0.1"]'
    body = (
        '{"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "DNSRecord", '
        f'"metadata": {{"name": "deep", "namespace": "{records.namespace}"}}, '
        f'"spec": {{{spec}, "secretRef": {{"name": "dns"}}, "providerConfig": {nested}}}}}'
    )
    kubectl = await asyncio.create_subprocess_exec(
        binaries.find("kubectl"), f"--kubeconfig={plane.kubeconfig}", "create", "--validate=false", "-f", "-",
        stdin=PIPE, stdout=DEVNULL, stderr=PIPE,
    )  # fmt: skip
    _, said = await soon(kubectl.communicate(body.encode()))
    assert kubectl.returncode == 0, said.decode()
