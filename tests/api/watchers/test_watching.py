"""Which kinds of which clusters a process mirrors."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from bus import streams, subjects
from bus.clusters.clusters import clusters
from bus.clusters.registry import Member, Registry
from bus.leases import presence
from bus.leases.leases import Leases
from bus.messages import Announcement
from bus.transport.connection import Bus, connected
from sandbox.programs import binaries
from tests.api.watchers.conftest import Records, heard, knows, serving
from tests.api.watchers.test_mirror import mirror
from tests.support import forked, loopback, servers
from tests.support.cases import cases
from tests.support.forked import Forked
from tests.support.kindworld import inline
from tests.support.running import eventually, running, soon
from tests.support.servers import ControlPlane
from watchers.watching import Watching
from windowbox import kinds as table
from windowbox.clients.kubernetes.kube import Kube
from windowbox.kinds import WATCHED
from windowbox.models.refs import DNSRECORDS, SECRETS, Resource, SecretKey
from windowbox.settings.bussettings import Access

RECORDS = f"runtime/{DNSRECORDS.id}"
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)


@dataclass
class Watcher:
    """What one process does to watch."""

    registry: Registry
    watching: Watching

    def state(self, which: str = RECORDS) -> str:
        return self.watching.states.get(which, "")

    async def reaches(self, state: str, which: str = RECORDS) -> None:

        await eventually(lambda: self.state(which).startswith(state))


@contextlib.asynccontextmanager
async def watcher(
    bus: Bus,
    runtime: Kube,
    name: str = "one",
    kinds: tuple[str, ...] = (DNSRECORDS.id,),
    files: Mapping[str, Path] | None = None,
) -> AsyncIterator[Watcher]:
    """Watch as long as the body lasts."""
    registry, leases = Registry(bus), Leases(bus, name, "watch")
    async with clusters(runtime, registry, loopback.SETTINGS, files) as opened:
        watching = Watching(bus, leases, opened, registry, kinds)
        async with running(leases.run(), registry.run(), watching.run()):
            yield Watcher(registry, watching)


async def test_a_standby_takes_over_without_a_gap(bus: Bus, records: Records) -> None:
    async with contextlib.AsyncExitStack() as stack:
        one = await stack.enter_async_context(watcher(bus, records.kube, "one"))
        await one.reaches("watching")
        async with watcher(bus, records.kube, "two") as two:
            await two.reaches("standing by")
            await records.create("before")
            await eventually(lambda: knows(bus, records.ref("before"), "ADDED", "10.0.0.1"))
            assert (one.state(), two.state()) == ("watching", "standing by")
            await stack.aclose()
            assert one.state() == "standing by"
            await records.create("between")
            await two.reaches("watching")
            await records.create("after")
            await eventually(lambda: knows(bus, records.ref("after"), "ADDED", "10.0.0.1"))
    assert sorted(name for _, name, _ in await heard(bus, records)) == ["after", "before", "between"]


async def test_a_killed_watcher_is_replaced_without_a_gap(
    bus: Bus, nats_url: str, control_plane: ControlPlane, records: Records, tmp_path: Path
) -> None:
    with watch_process(nats_url, control_plane.kubeconfig, tmp_path) as first:
        await records.create("before")
        await eventually(lambda: heard(bus, records))
        async with watcher(bus, records.kube, "heir") as heir:
            await heir.reaches("standing by")
            first.kill()
            await records.create("between")
            await heir.reaches("watching")
            await eventually(lambda: knows(bus, records.ref("between"), "LISTED", "10.0.0.1"))
        assert len(await heard(bus, records)) == 2


@pytest.mark.long  # the tests of this file read the states, commands/test_looking.py shows them
async def test_a_watcher_process_reports_its_watches(
    nats_url: str, control_plane: ControlPlane, tmp_path: Path
) -> None:
    with watch_process(nats_url, control_plane.kubeconfig, tmp_path) as started:
        async with connected(Access(nats_url)) as bus:

            async def reported() -> list[dict[str, Any]]:
                there = await presence.processes(bus)
                return [p for p in there if set(p.get("watches", {}).values()) == {"watching"}]

            [watch] = await eventually(reported)
            assert watch["role"] == "watch"
            assert set(watch["watches"]) == {f"runtime/{kind}" for kind in WATCHED}
            await asyncio.to_thread(started.end)
            assert started.process.exitcode == 0
            assert await presence.processes(bus) == []


async def test_a_missing_kind_is_awaited(bus: Bus, records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    widgets = Resource("test.windowbox.dev", "v1", "widgets", "Widget")
    monkeypatch.setitem(table.RESOURCES, widgets.id, widgets)
    async with watcher(bus, records.kube, kinds=(widgets.id, DNSRECORDS.id)) as one:
        which = f"runtime/{widgets.id}"
        await one.reaches("waiting for its CustomResourceDefinition", which)
        await one.reaches("watching")
        try:
            # Of another version at first: then there is still nothing to watch.
            await records.kube.create(CRDS, "", definition(widgets, "v1alpha1"))
            await one.reaches("waiting for its CustomResourceDefinition", which)
            versions = definition(widgets, "v1alpha1", "v1")["spec"]["versions"]
            await records.kube.merge(CRDS, "", widgets.id, {"spec": {"versions": versions}})
            await one.reaches("watching", which)
        finally:
            await records.kube.delete(CRDS, "", widgets.id)


async def test_a_broken_cluster_disturbs_no_other(
    bus: Bus, control_plane: ControlPlane, records: Records
) -> None:
    content = yaml.safe_load(portable(control_plane))
    content["users"][0]["user"] = {"exec": {"command": "touch", "args": ["here"]}}
    await store_kubeconfig(records, yaml.safe_dump(content))
    async with watcher(bus, records.kube, files={"missing": Path("/nowhere")}) as one:
        await bus.publish("$KV.clusters.nonsense", b"{")
        await one.registry.join(member("tricky", records))
        await one.registry.join(Member(id="strange", kinds=("widgets.example.com",), file="/nowhere"))
        await one.registry.join(Member(id="missing", file="/nowhere"))
        await one.reaches("broken", f"tricky/{DNSRECORDS.id}")
        await one.reaches("broken", f"missing/{DNSRECORDS.id}")
        await one.reaches("broken: this version knows no such kind", "strange/widgets.example.com")
        assert "users[0].user.exec is not allowed" in one.state(f"tricky/{DNSRECORDS.id}")
        await one.reaches("watching")
        await records.create("web")
        await eventually(lambda: knows(bus, records.ref("web"), "ADDED", "10.0.0.1"))


@contextlib.contextmanager
def watch_process(url: str, kubeconfig: Path, folder: Path) -> Iterator[Forked]:
    process = forked.start("watch", "--nats", url, "--kubeconfig", str(kubeconfig), log=folder / "watch.log")
    try:
        yield process
    finally:
        process.end()


def member(id: str, records: Records) -> Member:
    return Member(id=id, secret=SecretKey(namespace=records.namespace, name="kubeconfig"))


def portable(plane: ControlPlane) -> str:
    """The administrator's kubeconfig with everything inline, as it stands in a Secret."""
    return inline(plane.kubeconfig.read_bytes()).decode()


async def store_kubeconfig(records: Records, text: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "kubeconfig"},
        "data": {"kubeconfig": base64.b64encode(text.encode()).decode()},
    }
    await records.kube.create(SECRETS, records.namespace, body)


def definition(resource: Resource, *versions: str) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object"}}
    served = [{"name": v, "served": True, "storage": v == versions[0], "schema": schema} for v in versions]
    names = {"kind": resource.kind, "plural": resource.plural, "singular": resource.kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.id},
        "spec": {"group": resource.group, "scope": "Namespaced", "names": names, "versions": served},
    }


@contextlib.asynccontextmanager
async def stranger(one: Watcher, folder: Path, listing: str, line: str = "") -> AsyncIterator[list[str]]:
    """A member whose server is no Kubernetes API. What is yielded are the paths that were watched."""
    watched: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        if "watch" not in request.query:
            return web.Response(text=listing)
        watched.append(request.path)
        return web.Response(text=line + "\n")

    async with serving(answer) as kubeconfig:
        (folder / "strange").write_text(kubeconfig)
        await one.registry.join(Member(id="strange", kinds=(DNSRECORDS.id,), file=str(folder / "strange")))
        yield watched


async def test_a_strange_list_disturbs_no_other(bus: Bus, records: Records, tmp_path: Path) -> None:
    async with (
        watcher(bus, records.kube, files={"strange": tmp_path / "strange"}) as one,
        stranger(one, tmp_path, "<html>"),
    ):
        await one.reaches("broken", f"strange/{DNSRECORDS.id}")
        assert "not from a Kubernetes API" in one.state(f"strange/{DNSRECORDS.id}")
        await _all_is_well(one, bus, records)


async def test_a_strange_watch_disturbs_no_other(bus: Bus, records: Records, tmp_path: Path) -> None:
    empty, line = '{"metadata": {"resourceVersion": "1"}, "items": []}', '{"type": "ADDED", "object": {}}'
    async with (
        watcher(bus, records.kube, files={"strange": tmp_path / "strange"}) as one,
        stranger(one, tmp_path, empty, line) as asked,
    ):
        await eventually(lambda: len(asked) > 1)
        await _all_is_well(one, bus, records)


async def _all_is_well(one: Watcher, bus: Bus, records: Records) -> None:
    await one.reaches("watching", RECORDS)
    await records.create("web")
    await eventually(lambda: knows(bus, records.ref("web"), "ADDED", "10.0.0.1"))


@cases("depth", ("deeper-than-written", 260), ("deeper-than-read", 1100))
async def test_deep_objects_stop_no_other(
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
