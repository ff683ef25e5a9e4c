"""The story of an object as lanes, and runs side by side."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from bus.messages import Call, ReviewRecord
from commands.journal.stories import Story
from tests.support.pages import record
from tests.support.samples import NOW, run, seen
from ui.views import story

WWW = record("www")
PLANTED = "s3cr3t-Pl4nted"


def dns(address: str, **more: Any) -> Call:
    request = {"do": "replace", "name": "www", "ttl": 120, "type": "A", "values": [address]}
    return Call(door="dns", request=request, effect=True, **more)


def test_each_step_has_the_lane_of_what_did_it() -> None:
    review = ReviewRecord(
        webhook="dns", key="k", uid="u", operation="CREATE", decided=NOW, seconds=0.1, process="p",
        outcome="patched",
    )  # fmt: skip
    told = story.model(
        WWW, Story([seen(1, body={})], [run(calls=(dns("10.0.0.1"),)), run(pool="patch")], [review])
    )
    found = {step.title.partition(",")[0]: step.lane for step in told.steps}
    assert found == {
        "ADDED": "watcher", "dnsrecord: asked for": "bus", "dnsrecord: succeeded": "worker",
        "DNS: replace www 120 A 10.0.0.1": "world", "patch: asked for": "bus", "patch: succeeded": "patcher",
        "webhook dns: patched at CREATE": "webhooks",
    }  # fmt: skip


def test_the_last_run_stands_beside_the_one_before() -> None:
    error = {"type": "Refused", "message": "NOTAUTH"}
    told = story.model(
        WWW,
        Story(
            [], [run(calls=(dns("10.0.0.1"),)), run(calls=(dns("10.0.0.2", error=error),), outcome="failed")]
        ),
    )
    [comparison] = told.comparisons
    assert comparison.differs
    assert [(line.before, line.last, line.same) for line in comparison.lines] == [
        ("DNS: replace www 120 A 10.0.0.1", "DNS: replace www 120 A 10.0.0.2 ✗ Refused: NOTAUTH", False)
    ]


def test_runs_that_did_the_same_do_not_differ() -> None:
    [comparison] = story.model(WWW, Story([], [run(calls=(dns("10.0.0.1"),))] * 2)).comparisons
    assert not comparison.differs


def test_the_verdict_is_that_of_the_last_run() -> None:
    told = story.model(WWW, Story([], [run(), run(outcome="failed", note="the name server is away")]))
    assert (told.verdict, told.tone) == ("the name server is away", "bad")
    assert story.model(WWW, Story([], [run()])).tone == "good"


def test_a_long_story_is_cut_at_its_old_end() -> None:
    told = story.model(WWW, Story([seen(number, body={}) for number in range(1, 301)]))
    assert (len(told.steps), told.omitted) == (200, 100)


def test_nothing_secret_is_told() -> None:
    body = {"spec": {"files": [{"content": {"inline": {"data": PLANTED}}}], "password": PLANTED}}
    call = Call(
        door="create",
        request={"object": {"kind": "Secret", "metadata": {"name": "a"}, "data": {"k": PLANTED}}},
        effect=True,
    )
    review = ReviewRecord(
        webhook="w", key="k", uid="u", operation="CREATE", decided=NOW, seconds=0.1, process="p",
        outcome="patched",
        patch=[{"op": "add", "path": "/data/x", "value": PLANTED}], message=f"token={PLANTED}",
    )  # fmt: skip
    told = story.model(
        WWW,
        Story(
            [seen(1, body={}), seen(2, "MODIFIED", body)],
            [run(calls=(call,), note=f"password: {PLANTED}")],
            [review],
        ),
    )
    assert PLANTED not in json.dumps(asdict(told), default=str)
