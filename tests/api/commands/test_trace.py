"""`windowbox trace`, on real servers."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest

from bus import streams, subjects
from bus.messages import Reason, Wish
from bus.transport.connection import connected
from bus.workqueue.queue import Queue
from tests.api.commands.operated import CommandLine, Operated
from tests.e2e.client import Record, failed
from tests.support.cases import cases
from tests.support.running import eventually
from windowbox.models.refs import DNSRECORDS, RUNTIME, ObjectRef
from windowbox.settings.bussettings import Access


@pytest.fixture(scope="module")
def mended(operated: Operated) -> Record:
    """A record that was created with nonsense in it, and then corrected."""
    space = operated.space()
    record = space.record(space.name("web"), ["nonsense"], name="web")
    record.until(failed)
    record.until_ready(record.ask("reconcile", values=["10.0.0.7"], ttl=60))
    return record


def traced(operated: Operated, record: Record) -> dict[str, Any]:
    """The record's story, once nothing is under way any more."""
    report = operated.windowbox.until(
        "trace", "dns", f"{record.namespace}/{record.name}",
        shows=lambda report: any(
            "Succeeded" in str(moment["details"]) for moment in report["story"] if moment["what"] == "seen"
        ),
    )  # fmt: skip
    assert isinstance(report, dict)
    return report


def test_the_story_leads_from_first_sight_to_written_status(operated: Operated, mended: Record) -> None:
    story = traced(operated, mended)["story"]
    assert [moment["at"] for moment in story] == sorted(moment["at"] for moment in story)
    # LISTED, where the watcher had only just come.
    assert story[0]["title"].startswith(("ADDED, version ", "LISTED, version "))
    runs = [moment for moment in story if moment["what"] == "run"]
    assert runs[0]["title"].startswith('dnsrecord: failed (spec.values holds "nonsense"')
    assert "dnsrecord: succeeded (Create)" in [moment["title"] for moment in runs]
    written = [moment["title"] for moment in story if moment["what"] == "status"]
    assert written == ["patch: succeeded (Error)", "patch: succeeded (Succeeded)"]
    [last] = [moment for moment in story if moment["title"] == "patch: succeeded (Succeeded)"]
    assert "status: Create Succeeded: Successfully reconciled DNSRecord" in last["details"]


def test_a_run_shows_its_reason_reads_and_effects(operated: Operated, mended: Record) -> None:
    story = traced(operated, mended)["story"]
    run = next(moment for moment in story if moment["title"] == "dnsrecord: succeeded (Create)")
    why, read, *did = run["details"]
    assert why.startswith("event; waited ")
    assert f"by {run['process']}" in why
    assert read.startswith("read OBJECTS ")
    [dns] = [line for line in did if line.startswith("DNS: ")]
    name = mended.read().spec["name"]
    assert dns == f"DNS: replace {name} 60 A 10.0.0.7"
    assert not [line for line in did if line.startswith(("shoot", "clock", "reported", "twin"))]


def test_a_version_shows_what_changed(operated: Operated, mended: Record) -> None:
    details = [
        line for m in traced(operated, mended)["story"] if m["what"] == "seen" for line in m["details"]
    ]
    assert 'spec.values: ["nonsense"] → ["10.0.0.7"]' in details
    assert "spec.ttl: – → 60" in details
    assert not [line for line in details if line.startswith("metadata.resourceVersion")]


def test_the_run_and_the_change_that_caused_it_have_one_trace(operated: Operated, mended: Record) -> None:
    story = traced(operated, mended)["story"]
    first_run = next(moment for moment in story if moment["what"] == "run")
    assert first_run["trace"] == story[0]["trace"] != ""


def test_text_has_a_hundred_columns(operated: Operated) -> None:
    space = operated.space()
    record = space.record(space.name(), ["10.0.0.1"])
    record.until_ready()
    traced(operated, record)
    shown = operated.windowbox("trace", "dns", f"{space.namespace}/{record.name}")
    assert max(len(line) for line in shown.splitlines()) <= 100
    assert "\x1b" not in shown
    assert shown.splitlines()[-1].split() == ["now", "nothing", "is", "waiting"]


def test_a_retry_whose_cause_is_gone_waits_no_more(operated: Operated) -> None:
    space = operated.space()
    record = space.record(space.name(), ["nonsense"])
    record.until(failed)
    trace = functools.partial(operated.windowbox.until, "trace", "dns", f"{record.namespace}/{record.name}")
    [waiting] = trace(shows=lambda report: report["waiting"])["waiting"]
    assert waiting["title"].startswith("dnsrecord: again at ")
    record.until_ready(record.ask("reconcile", values=["10.0.0.7"]))
    trace(shows=lambda report: not report["waiting"])


def test_wishes_without_a_worker_say_so(alone: CommandLine, nats_url: str) -> None:
    key = subjects.key(ObjectRef(RUNTIME, DNSRECORDS.id, "default", "www.example.com"))

    async def wish() -> None:
        async with connected(Access(nats_url)) as bus:
            await streams.ensure(bus)
            queue = Queue(bus, "dnsrecord")
            await queue.wish(key, Wish(reason=Reason.DRIFT))
            await queue.schedule(key, Wish(reason=Reason.DUE, note="it is renewed then"), 0.01)

            await eventually(lambda: bus.last(streams.LATER, subjects.due("dnsrecord", key)))

    asyncio.run(wish())
    now, later = alone.json("trace", "dns", "default/www.example.com")["waiting"]
    assert now["title"].startswith("dnsrecord: wished for since ")
    assert now["title"].endswith("(drift): no process works for pool dnsrecord; start one")
    assert later["title"].startswith("dnsrecord: again at ")
    assert later["title"].endswith(": no process works for pool dnsrecord; start one (due)")
    assert later["details"] == ["because: it is renewed then"]


@cases(
    "arguments code said",
    ("unknown", ("dns", "default/nobody"), 3, "holds nothing of dnsrecords default"),
    ("short-name", ("infra", "a/b"), 3, "holds nothing of infrastructures a/b"),
    ("kind", ("job", "default/web"), 2, "no kind 'job'; there are: backupbucket, "),
    ("no-namespace", ("dns", "web"), 2, "write NAMESPACE/NAME"),
    ("too-much", ("namespace", "a/b"), 2, "'a/b' names no Namespace: write NAME"),
)
def test_a_wrong_trace_is_explained(
    operated: Operated, arguments: tuple[str, ...], code: int, said: str
) -> None:
    shown = operated.windowbox.here("trace", *arguments)
    assert shown.exit_code == code
    assert said in shown.output
