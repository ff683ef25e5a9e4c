"""The page over HTTP: what it shows, what it refuses, what it never says."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import aiohttp
import pytest

from bus import subjects
from bus.messages import Call, Reason, Wish
from bus.transport import consumers
from bus.transport.consumers import Consumer
from commands import busstatus
from tests.support import pages
from tests.support.hostile import values
from tests.support.pages import World, record
from tests.support.running import eventually, running
from ui import limits, sessions
from ui.mirror import Mirror
from ui.views.table import VIEWS
from windowbox.models.refs import DNSRECORDS

WWW = record("www")
STORY = "/story/runtime/dnsrecord/shoot--local--demo/www"
HOSTILE = [text for text in values.TEXTS[:24] if text != "\ud800"]
"""Half of a character cannot come over the bus."""
PLANTED = "s3cr3t-Pl4nted"


async def get(world: World, path: str, **headers: str) -> tuple[int, str, Any]:
    async with (
        world.signed_in() as client,
        client.get(path, headers=headers, allow_redirects=False) as answer,
    ):
        return answer.status, await answer.text(), answer.headers


async def test_what_is_well_is_a_number_and_what_failed_is_told_with_its_reason(world: World) -> None:
    for name in ("a", "b"):
        await world.object(record(name), {"spec": {}})
    await world.object(WWW, {"spec": {}})
    await world.run(WWW, "failed", "the name server is away")
    await world.later(WWW, Wish(reason=Reason.RETRY), 60)
    await eventually(lambda: len(world.mirror.ill) == len(world.mirror.later) == 1)
    text = await world.text("/attention")
    assert "the name server is away" in text
    assert "tried again by itself" in text
    assert re.search(r"<strong>2</strong> objects are well", text)
    assert f'href="{STORY.replace("dnsrecord/", "dnsrecords.extensions.gardener.cloud/")}"' in text


async def test_an_object_that_recovers_is_well_again(world: World) -> None:
    await world.object(WWW, {"spec": {}})
    await world.run(WWW, "failed", "the name server is away")
    await eventually(lambda: bool(world.mirror.ill))
    await world.run(WWW)
    await eventually(lambda: not world.mirror.ill)
    assert "All is well" in await world.text("/")


async def test_since_when_it_fails_is_read_from_the_journal(world: World) -> None:
    for ago in (500, 400, 300):
        await world.run(WWW, "failed" if ago < 500 else "succeeded", "no", ago=ago)
    later = Mirror(world.mirror.bus, lambda _: None)
    async with running(later._follow_runs()):
        await later.complete.wait()
        [place] = later.ill
        assert not later.ill[place].certain
        await later.learn_since(place)
        assert later.ill[place].certain
        assert 390 < time.time() - later.ill[place].since < 460


async def test_a_story_shows_steps_of_all_lanes_and_no_secret(world: World) -> None:
    body = {
        "spec": {"name": "www", "password": PLANTED, "files": [{"content": {"inline": {"data": PLANTED}}}]}
    }
    await world.object(WWW, {"spec": {}})
    await world.object(WWW, body)
    calls = [
        Call(
            door="dns",
            request={"do": "replace", "name": "www", "type": "A", "values": ["10.0.0.1"]},
            effect=True,
        ),
        Call(door="apply", request={"object": {"kind": "Secret", "data": {"a": PLANTED}}}, effect=True),
        Call(door="look", request="x", error={"type": "Refused", "message": f"Bearer {PLANTED}"}),
    ]
    await world.run(WWW, "failed", f"password={PLANTED}", calls=calls)
    await world.run(WWW, pool="patch")
    for path in (STORY, "/attention", "/find?q=www", "/pools"):
        text = await world.text(path)
        assert PLANTED not in text, path
    text = await world.text(STORY)
    assert "DNS: replace www A 10.0.0.1" in text
    for lane in ("watcher", "bus", "worker", "world", "patcher"):
        assert f'<span class="lane">{lane}</span>' in text


async def test_pools_show_quarantine_streams_and_processes(world: World) -> None:
    await world.later(WWW, Wish(reason=Reason.QUARANTINED, note="set aside"), 600)
    async with pages.process(world):
        await eventually(lambda: bool(world.mirror.later))
        text = await world.text("/pools")
    assert "In quarantine" in text
    assert "work@host-1" in text
    assert "JOURNAL" in text


async def test_a_pool_that_has_served_shows_what_it_has_not_routed_yet(world: World) -> None:
    """Its consumers are there. The page has the right to look at them, and to do nothing else with them."""
    served = subjects.item("dnsrecord", ">"), subjects.seen_kind("*", DNSRECORDS.id)
    for stream, name, subject in zip(("WORK", "OBJECTS"), ("pool", "route"), served, strict=True):
        await consumers.ensure(world.bus, Consumer(stream, f"{name}-dnsrecord", (subject,), 10))
    await world.object(WWW, {"spec": {}})

    found = {
        state.pool: state.unrouted for state in await busstatus.pools(world.mirror.bus, (), at_rest=False)
    }
    assert found["dnsrecord"] == 1
    assert '<th scope="row">dnsrecord</th>' in await world.text("/pools")


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', *HOSTILE])
async def test_hostile_words_of_others_are_text(world: World, text: str) -> None:
    await world.object(WWW, {"spec": {"name": text}, "status": {"lastError": {"description": text}}})
    await world.run(WWW, "failed", text, process=text)
    await eventually(lambda: bool(world.mirror.ill))
    for path in ("/attention", STORY, "/find?q=" + "www"):
        html = await world.text(path)
        assert "<script>" not in html
        assert "<img src=x" not in html


async def test_nobody_sees_anything_without_signing_in(world: World) -> None:
    async with aiohttp.ClientSession(world.url) as client:
        for path in ("/", STORY, *(f"/{view.name}" for view in VIEWS)):
            async with client.get(path, allow_redirects=False) as answer:
                assert (answer.status, answer.headers["Location"]) == (303, "/sign-in")
        async with client.get("/live/attention") as answer:
            assert answer.status == 401
        async with client.get("/sign-in") as answer:
            assert answer.status == 200


async def test_every_answer_has_the_headers_that_keep_others_out(world: World) -> None:
    paths = ("/", "/no-such-page", "/sign-in", "/static/x/style.css", "/static/x/no", "/enter?link=x", STORY)
    for path in paths:
        _, _, headers = await get(world, path)
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "same-origin"


async def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(world: World) -> None:
    async with aiohttp.ClientSession(world.url) as client:
        async with client.get("/enter", params={"link": sessions.link(pages.KEY, time.time())}) as answer:
            cookie = answer.headers["Set-Cookie"]
        async with client.get("/enter", params={"link": sessions.link("another key", time.time())}) as answer:
            assert answer.status == 403
            assert "Set-Cookie" not in answer.headers
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Path=/" in cookie


async def test_a_link_signs_in_once(world: World) -> None:
    link = sessions.link(pages.KEY, time.time())
    async with aiohttp.ClientSession(world.url) as client:
        found = []
        for _ in range(2):
            async with client.get("/enter", params={"link": link}) as answer:
                found.append(answer.status)
    assert found == [200, 403]


async def test_another_sites_name_for_our_address_is_refused(world: World) -> None:
    status, text, _ = await get(world, "/", Host="evil.example.com")
    assert status == 421
    assert "Needs attention" not in text


async def test_forms_of_other_sites_are_refused(world: World) -> None:
    async with world.signed_in() as client:
        async with client.get("/") as answer:
            found = re.search(r'name="csrf" value="([^"]+)"', await answer.text())
            assert found
            csrf = found[1]
        for form, headers in (
            ({}, {}), ({"csrf": "guess"}, {}), ({"csrf": csrf}, {"Origin": "https://evil.example.com"}),
            ({"csrf": csrf}, {"Sec-Fetch-Site": "cross-site"}),
        ):  # fmt: skip
            async with client.post("/sign-out", data=form, headers=headers, allow_redirects=False) as answer:
                assert answer.status == 403
        async with client.post("/sign-out", data={"csrf": csrf}, allow_redirects=False) as answer:
            assert answer.status == 303
        async with client.get("/", allow_redirects=False) as answer:
            assert answer.status == 303


async def test_a_client_may_not_ask_without_end(world: World) -> None:
    async with aiohttp.ClientSession(world.url) as client:
        for _ in range(300):
            async with client.get("/static/x/icon.svg") as answer:
                if answer.status == 429:
                    assert int(answer.headers["Retry-After"]) >= 1
                    return
    raise AssertionError("no request was refused")


async def test_guesses_of_tokens_are_slowed_down(world: World) -> None:
    async with aiohttp.ClientSession(world.url) as client:
        found = set()
        for _ in range(int(limits.MOST_SIGNING_IN) + 1):
            async with client.get("/enter", params={"link": "guess"}) as answer:
                found.add(answer.status)
    assert found == {403, 429}


async def test_a_client_opens_a_bounded_number_of_windows(world: World) -> None:
    async with world.signed_in() as client:
        opened = [await client.get("/live/attention") for _ in range(limits.MOST_STREAMS_OF_ONE)]
        async with client.get("/live/attention") as answer:
            assert answer.status == 429
        for one in opened:
            one.close()
        await eventually(lambda: world.server.hub.viewers == 0)
        async with client.get("/live/attention") as answer:
            assert answer.status == 200


async def test_a_body_that_is_too_large_is_refused(world: World) -> None:
    form = {"token": "x" * (300 << 10)}
    async with world.signed_in() as client, client.post("/sign-in", data=form) as answer:
        assert answer.status == 413


async def next_event(stream: aiohttp.StreamReader) -> str:
    lines = list[str]()
    async with asyncio.timeout(60):
        while (line := (await stream.readline()).decode()) != "\n" or not any("data" in one for one in lines):
            lines.append(line)
    return "".join(lines)


async def test_a_change_is_sent_to_all_who_look_and_read_once(world: World) -> None:
    async with world.signed_in() as client:
        streams = [await client.get("/live/attention") for _ in range(5)]
        for one in streams:
            assert "All is well" in await next_event(one.content)
        await world.object(WWW, {"spec": {}})
        await world.run(WWW, "failed", "the name server is away")
        told = [await _until(one.content, "the name server is away") for one in streams]
        assert all(told)
        assert len(world.server.hub._channels) == 1
        for one in streams:
            one.close()
    await eventually(lambda: not world.server.hub._channels)


async def _until(stream: aiohttp.StreamReader, text: str) -> bool:
    while text not in await next_event(stream):
        pass
    return True


async def test_a_story_is_told_on_while_it_happens(world: World) -> None:
    await world.object(WWW, {"spec": {}})
    async with world.signed_in() as client:
        stream = await client.get(f"/live{STORY}")
        await next_event(stream.content)
        began = time.monotonic()
        await world.run(WWW, "failed", "the name server is away")
        assert await _until(stream.content, "the name server is away")
        assert time.monotonic() - began < 10
        stream.close()


async def test_the_page_of_an_object_that_is_not_there_says_so(world: World) -> None:
    status, text, _ = await get(world, "/story/runtime/dnsrecord/a/b")
    assert status == 404
    assert "the bus holds nothing of" in text
    status, text, _ = await get(world, "/story/runtime/nokind/a/b")
    assert status == 404
    assert "windowbox knows no kind" in text


async def test_no_page_asks_another_host_for_anything(world: World) -> None:
    for path in ("/", "/sign-in", "/pools"):
        assert not re.search(r"""(src|href|action|url\()=?["']?(https?:)?//""", await world.text(path))
