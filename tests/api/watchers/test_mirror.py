"""One kind of a real cluster, mirrored to a real bus."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from bus import streams, subjects
from bus.messages import Announcement
from bus.transport import consumers
from bus.transport.connection import Bus, connected
from tests.api.watchers.conftest import ForgetfulPlane, Records, heard, in_namespace, knows
from tests.support import servers
from tests.support.proxy import Proxy, proxy
from tests.support.rules import rule
from tests.support.running import eventually, running, soon
from watchers.limits import Shared
from watchers.mirror import Mirror
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Superseded
from windowbox.models.refs import DNSRECORDS, RUNTIME, SECRETS, ObjectRef, Resource
from windowbox.settings.bussettings import Access


def mirror(bus: Bus, of: Kube, resource: Resource = DNSRECORDS, page: int = 500) -> Mirror:
    return Mirror(bus, of, RUNTIME, resource, Shared(bus), page=page)


async def mirrored_once(bus: Bus, of: Kube, resource: Resource = DNSRECORDS, page: int = 500) -> None:
    """Mirror until everything that is there has been announced."""
    once = mirror(bus, of, resource, page)
    async with running(once.run()):
        await soon(once.listed.wait())


async def test_existing_objects_are_announced_page_by_page(bus: Bus, records: Records) -> None:
    for number in range(5):
        await records.create(f"web-{number}")
    await mirrored_once(bus, records.kube, page=2)
    assert sorted(await heard(bus, records)) == [("LISTED", f"web-{n}", "10.0.0.1") for n in range(5)]


async def test_every_change_is_announced_once_and_in_order(bus: Bus, records: Records) -> None:
    live = mirror(bus, records.kube)
    async with running(live.run()):
        await soon(live.listed.wait())
        await records.create("web")
        for number in range(2, 6):
            await records.change("web", f"10.0.0.{number}")
        await records.delete("web")
        await eventually(lambda: knows(bus, records.ref("web"), "DELETED"))
    assert await heard(bus, records) == [
        ("ADDED", "web", "10.0.0.1"),
        *(("MODIFIED", "web", f"10.0.0.{number}") for number in range(2, 6)),
        ("DELETED", "web", ""),
    ]


@rule("V-1")
async def test_an_announcement_has_uid_version_and_predecessor(bus: Bus, records: Records) -> None:
    live = mirror(bus, records.kube)
    async with running(live.run()):
        await soon(live.listed.wait())
        first = await records.create("web")
        await records.delete("web")
        second = await records.create("web")
        await eventually(lambda: times(bus, records, 3))
    subject = subjects.seen(records.ref("web"))
    stored = [s async for s in consumers.snapshot(bus, streams.OBJECTS, [subject], history=True)]
    seen = [Announcement(s) for s in stored]
    assert [a.uid for a in seen] == [first.uid, first.uid, second.uid]
    assert [a.predecessor for a in seen] == [0, stored[0].sequence, stored[1].sequence]
    assert (seen[0].version, seen[2].version) == (first.resource_version, second.resource_version)


async def test_a_restart_announces_only_what_has_changed_meanwhile(bus: Bus, records: Records) -> None:
    for name in ("stays", "changes", "goes"):
        await records.create(name)
    await mirrored_once(bus, records.kube)
    await records.change("changes", "10.0.0.2")
    await records.delete("goes")
    await records.create("comes")
    before = await heard(bus, records)
    await mirrored_once(bus, records.kube)
    assert sorted((await heard(bus, records))[len(before) :]) == [
        ("DELETED", "goes", ""), ("LISTED", "changes", "10.0.0.2"), ("LISTED", "comes", "10.0.0.1"),
    ]  # fmt: skip
    after = await heard(bus, records)
    await mirrored_once(bus, records.kube)
    assert await heard(bus, records) == after


async def test_a_broken_watch_resumes_in_place(bus: Bus, forgetful: ForgetfulPlane, tmp_path: Path) -> None:
    async with proxy(forgetful.port) as line, far_away(forgetful, line, tmp_path) as (records, far):
        live = mirror(bus, far)
        async with running(live.run()):
            await soon(live.listed.wait())
            await records.create("web")
            await eventually(lambda: knows(bus, records.ref("web"), "ADDED", "10.0.0.1"))
            for number in range(2, 7):
                line.cut()
                await records.change("web", f"10.0.0.{number}")
            await eventually(lambda: knows(bus, records.ref("web"), "MODIFIED", "10.0.0.6"))
        assert [value for _, _, value in await heard(bus, records)] == [
            f"10.0.0.{number}" for number in range(1, 7)
        ]


async def test_a_gap_leads_to_a_new_comparison(bus: Bus, forgetful: ForgetfulPlane, tmp_path: Path) -> None:
    async with proxy(forgetful.port) as line, far_away(forgetful, line, tmp_path) as (records, far):
        live = mirror(bus, far, page=2)
        for name in ("stays", "changes", "goes"):
            await records.create(name)
        async with running(live.run()):
            await soon(live.listed.wait())
            before = await heard(bus, records)
            line.hang()
            await records.change("changes", "10.0.0.2")
            await records.change("changes", "10.0.0.3")
            await records.delete("goes")
            last = await records.create("comes")
            await forgetful.forget(last.resource_version)
            line.cut()
            line.resume()
            await eventually(lambda: knows(bus, records.ref("comes"), "LISTED", "10.0.0.1"))
            await eventually(lambda: knows(bus, records.ref("goes"), "DELETED"))
        assert sorted((await heard(bus, records))[len(before) :]) == [
            ("DELETED", "goes", ""), ("LISTED", "changes", "10.0.0.3"), ("LISTED", "comes", "10.0.0.1"),
        ]  # fmt: skip


async def test_only_the_metadata_of_a_secret_is_announced(bus: Bus, records: Records) -> None:
    live = mirror(bus, records.kube, SECRETS)
    await records.kube.create(SECRETS, records.namespace, secret("listed"))
    async with running(live.run()):
        await soon(live.listed.wait())
        await records.kube.create(SECRETS, records.namespace, secret("watched"))
        for name in ("listed", "watched"):
            ref = ObjectRef(RUNTIME, SECRETS.id, records.namespace, name)
            stored = await eventually(lambda ref=ref: bus.last(streams.OBJECTS, subjects.seen(ref)))  # type: ignore[misc]
            assert stored is not None
            assert b"c2VjcmV0" not in stored.data
            seen = Announcement(stored).object()
            assert set(seen.raw) == {"apiVersion", "kind", "metadata"}
            assert dict(seen.labels) == {"purpose": "test"}
            assert dict(seen.annotations) == {"kept": "yes"}
            assert "managedFields" not in seen.metadata


def secret(name: str) -> dict[str, Any]:
    last_applied = '{"data": {"key": "c2VjcmV0"}}'
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": last_applied, "kept": "yes"}
    metadata = {"name": name, "labels": {"purpose": "test"}, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"key": "c2VjcmV0"}}


async def test_a_too_large_object_is_announced_without_body(tmp_path: Path, records: Records) -> None:
    config = tmp_path / "nats.conf"
    config.write_text("max_payload: 16KB\n")
    (tmp_path / "nats").mkdir()
    with servers.nats_server(tmp_path / "nats", options=("--config", str(config))) as url:
        async with connected(Access(url)) as bus:
            await streams.ensure(bus)
            await records.create("large", annotations={"note": "x" * 20_000})
            await records.create("small")
            await mirrored_once(bus, records.kube)
            large = await bus.last(streams.OBJECTS, subjects.seen(records.ref("large")))
            assert large is not None
            assert Announcement(large).omitted
            assert large.data == b""
            assert await knows(bus, records.ref("small"), "LISTED", "10.0.0.1")


async def test_two_mirrors_of_one_kind_announce_nothing_twice(bus: Bus, records: Records) -> None:
    for number in range(20):
        await records.create(f"web-{number}")
    mirrors = [asyncio.create_task(mirror(bus, records.kube).run()) for _ in range(2)]
    await eventually(lambda: times(bus, records, 20))
    for number in range(20):
        await records.change(f"web-{number}", "10.0.0.2")
    (loser, *_), _ = await soon(asyncio.wait(mirrors, return_when=asyncio.FIRST_COMPLETED))
    assert isinstance(loser.exception(), Superseded)
    for task in mirrors:
        task.cancel()
    await asyncio.wait(mirrors)

    await mirrored_once(bus, records.kube)
    reported = await heard(bus, records)
    assert len(set(reported)) == len(reported)
    assert {name for _, name, value in reported if value == "10.0.0.2"} == {f"web-{n}" for n in range(20)}


async def times(bus: Bus, records: Records, count: int) -> bool:
    """Whether so many announcements have been made."""
    return len(await heard(bus, records)) >= count


@contextlib.asynccontextmanager
async def far_away(plane: ForgetfulPlane, line: Proxy, folder: Path) -> AsyncIterator[tuple[Records, Kube]]:
    """The cluster, nearby and over the line that may break."""
    nearby, over_the_line = plane.kubeconfig(folder, plane.port), plane.kubeconfig(folder, line.port)
    async with in_namespace(nearby) as records, kube.from_file(over_the_line) as far:
        yield records, far
