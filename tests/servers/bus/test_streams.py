from __future__ import annotations

from typing import Any

import pytest

from bus import schema, streams
from bus.transport.connection import ApiError, Bus, connected
from tests.support.natsserver import ensured
from windowbox.errors import Refused
from windowbox.settings.bussettings import Access

NAMES = [
    *("OBJECTS", "TRIGGERS", "WORK", "LATER", "INTENTS", "JOURNAL", "REVIEWS"),
    *("KV_leases", "KV_clusters", "KV_addresses", "KV_edges"),
]


async def config(bus: Bus, stream: str) -> dict[str, Any]:
    found: dict[str, Any] = (await bus.api(f"STREAM.INFO.{stream}"))["config"]
    return found


async def test_all_streams_are_made_once(nats_url: str) -> None:
    async with connected(Access(nats_url)) as bus:
        assert await ensured(bus) == [f"created stream {name}" for name in NAMES]
        assert await ensured(bus) == []


async def test_a_setting_that_changed_is_brought_up_to_date(bus: Bus) -> None:
    changed = {**await config(bus, "OBJECTS"), "max_msgs_per_subject": 3}
    await bus.api("STREAM.UPDATE.OBJECTS", changed)
    await bus.publish("object.c.k.n.web", b"kept")

    assert await ensured(bus) == ["updated stream OBJECTS: max_msgs_per_subject"]
    assert (await config(bus, "OBJECTS"))["max_msgs_per_subject"] == 16
    kept = await bus.last("OBJECTS", "object.c.k.n.web")
    assert kept is not None
    assert kept.data == b"kept"


async def test_reviews_move_out_of_the_journal_of_an_older_version(bus: Bus) -> None:
    await bus.api("STREAM.DELETE.REVIEWS")
    journal = await config(bus, "JOURNAL")
    await bus.api("STREAM.UPDATE.JOURNAL", {**journal, "subjects": [*journal["subjects"], "review.>"]})
    await bus.publish("run.pool.one", b"kept")

    assert await ensured(bus) == ["updated stream JOURNAL: subjects", "created stream REVIEWS"]
    await bus.publish("review.one", b"new")
    assert await bus.last("REVIEWS", "review.one")
    assert await bus.last("JOURNAL", "run.pool.one")


async def test_what_an_operator_added_is_left_alone(bus: Bus) -> None:
    await bus.api("STREAM.UPDATE.JOURNAL", {**await config(bus, "JOURNAL"), "description": "of our team"})
    assert await ensured(bus) == []
    assert (await config(bus, "JOURNAL"))["description"] == "of our team"


async def test_each_stream_carries_the_version_of_its_schema(bus: Bus) -> None:
    assert {schema.found(await config(bus, name)) for name in NAMES} == {schema.CURRENT}


async def test_a_stream_of_an_older_version_gets_its_number_and_keeps_what_operators_noted(bus: Bus) -> None:
    found = await config(bus, "WORK")
    await bus.api("STREAM.UPDATE.WORK", {**found, "metadata": {"team": "ours"}})
    assert await ensured(bus) == ["updated stream WORK: metadata"]
    metadata = (await config(bus, "WORK"))["metadata"]
    assert (metadata["team"], metadata["windowbox.schema"]) == ("ours", "1")


async def test_what_a_newer_version_has_set_is_left_alone(bus: Bus) -> None:
    newer = schema.Schema(version=2, reader=1)
    changed = {"max_msgs_per_subject": 3, "metadata": newer.metadata}
    await bus.api("STREAM.UPDATE.OBJECTS", {**await config(bus, "OBJECTS"), **changed})
    assert await ensured(bus) == []
    assert (await config(bus, "OBJECTS"))["max_msgs_per_subject"] == 3
    await schema.check(bus, "OBJECTS")


async def test_messages_that_only_newer_versions_read_are_refused(bus: Bus) -> None:
    newer = schema.Schema(version=3, reader=2)
    await bus.api("STREAM.UPDATE.OBJECTS", {**await config(bus, "OBJECTS"), "metadata": newer.metadata})
    told = "stream OBJECTS has messages of schema 3, .*schema 2 or newer reads; this one has 1"
    with pytest.raises(Refused, match=told):
        await ensured(bus)
    with pytest.raises(Refused, match=told):
        await schema.check(bus, "OBJECTS")


async def test_a_stream_that_is_not_made_yet_keeps_nobody_from_starting(bus: Bus) -> None:
    await bus.api("STREAM.DELETE.WORK")
    await schema.check(bus, "WORK")


async def test_a_stream_that_cannot_be_brought_up_to_date_is_explained(bus: Bus) -> None:
    await bus.api("STREAM.DELETE.WORK")
    await bus.api("STREAM.CREATE.WORK", {"name": "WORK", "subjects": ["work.>"], "storage": "file"})
    with pytest.raises(Refused, match=r"stream WORK .*retention.*nats stream rm WORK"):
        await ensured(bus)


@pytest.mark.parametrize("nats_url", ["one"], indirect=True)
async def test_three_replicas_are_asked_for_where_they_are_set(nats_url: str) -> None:
    async with connected(Access(nats_url)) as bus:
        with pytest.raises(ApiError, match="replicas > 1 not supported in non-clustered mode"):
            await streams.ensure(bus, replicas=3)
