"""The timeline of `windowbox trace`, from values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bus.messages import Call, Read, Reason, RunRecord, Wish
from bus.workqueue.queue import Scheduled
from commands.journal import timeline
from commands.journal.timeline import Pending
from tests.support.cases import cases

NOW = datetime(2026, 9, 1, 10, 15, 31, tzinfo=UTC)
EVENT = Wish(reason=Reason.EVENT)
NOBODY = "no process works for pool p; start one"


def run(pool: str = "dnsrecord", outcome: str = "succeeded", **more: Any) -> RunRecord:
    return RunRecord(
        pool=pool, key="k", wish=EVENT, wish_sequence=1, delivery=more.pop("delivery", 1),
        started=more.pop("started", NOW),
        seconds=0.012, process="host/1", outcome=outcome, **more,
    )  # fmt: skip


def output(*calls: Call) -> list[str]:
    [moment] = timeline.moments([], [run(calls=list(calls))])
    return list(moment.details[1:])


@cases(
    "item workers why",
    ("in-hand", "in hand", 1, "a worker is reconciling it"),
    ("queued", "waiting", 1, "queued, waiting for a free worker"),
    ("no-worker", "waiting", 0, NOBODY),
    ("lost-item", "none", 1, "not queued; the next sweep queues it"),
    ("lost-alone", "none", 0, NOBODY),
)
def test_a_pending_wish_shows_why_it_waits(item: Any, workers: int, why: str) -> None:
    pending = Pending("p", EVENT, NOW, item, workers)
    [moment] = timeline.waits([pending], [], NOW + timedelta(seconds=3))
    assert moment.title == f"p: wished for since 3.0 s (event): {why}"


GIVEN_UP = "the machine is Failed then, unless its node is healthy before"
LATER: dict[Reason, tuple[str, str, str]] = {
    # Pools retry the wish that they were given.
    Reason.EVENT: ("ingress", "waiting", "list dnsrecords: the API server is away"),
    Reason.RETRY: ("dnsrecord", "failed", 'spec.values holds "nonsense"'),
    Reason.DUE: ("machine", "nothing to do", GIVEN_UP),
    Reason.START: ("loadbalancer", "waiting", "waiting for a turn: runs of lab take long"),
    Reason.SWEEP: ("loadbalancer", "waiting", "waiting for a turn: runs of lab take long"),
    Reason.DRIFT: ("controlplane", "succeeded", "a certificate is renewed then"),
    Reason.LATE_REPORT: ("infrastructure", "failed", "apply networkpolicies: forbidden"),
    Reason.CUT_OFF: ("ingress", "waiting", "stopped, because runs of lab take too long"),
    Reason.REPORT: ("patch", "failed", "patch status: conflict"),
    Reason.QUARANTINED: ("machine", "failed", "set aside, because its runs ended their process"),
    Reason.ADDRESS: ("loadbalancer", "waiting", "waiting for a turn: runs of lab take long"),
    Reason.EDGE: ("loadbalancer", "waiting", "waiting for a turn: runs of lab take long"),
    Reason.UNREADABLE: ("ingress", "waiting", "list dnsrecords: the API server is away"),
    Reason.GRACE_OVER: ("loadbalancer", "succeeded", "its former addresses are kept for it until then"),
}
"""For each reason that a wish in LATER may have: its pool, how the run that scheduled it ended, its note."""
MINE, NEXT = "00-1-1-01", "00-1-2-01"


def scheduled(reason: Reason = Reason.DUE, ahead: float = 480, *, fired: bool = False) -> Scheduled:
    wish = Wish(reason=reason, note=LATER[reason][2])
    return Scheduled(wish, NOW + timedelta(seconds=ahead), NOW, MINE, fired)


def test_each_reason_of_a_scheduled_wish_has_a_row() -> None:
    assert set(LATER) == set(Reason)


@pytest.mark.parametrize("reason", LATER)
def test_a_scheduled_wish_shows_what_it_waits_for(reason: Reason) -> None:
    pool, outcome, note = LATER[reason]
    runs = [run("other", "failed", note="of another pool"), run(pool, outcome, note="Create", trace=MINE)]
    [moment] = timeline.waits([Pending(pool, workers=1, scheduled=[scheduled(reason)])], runs, NOW)
    assert moment.title.startswith(f"{pool}: again at ")
    assert moment.title.endswith(f", in 8 min ({reason})")
    assert moment.details == (f"because: {note}",)


@pytest.mark.parametrize("reason", LATER)
@pytest.mark.parametrize("outcome", ["succeeded", "nothing to do"])
def test_a_later_run_decides_whether_a_scheduled_wish_is_needed(reason: Reason, outcome: str) -> None:
    pool, before, note = LATER[reason]
    newer = run(pool, outcome, trace=NEXT, started=NOW + timedelta(seconds=9))
    runs = [run(pool, before, trace=MINE), newer]
    [moment] = timeline.waits([Pending(pool, workers=1, scheduled=[scheduled(reason)])], runs, NOW)
    because, since = moment.details
    if outcome == "succeeded":
        assert because.startswith("left from the run of ")
        assert because.endswith(f" (because: {note})")
        assert since.startswith("not needed any more: the run of ")
        assert since.endswith(" has ended since (succeeded), and waits for nothing")
    else:
        assert because == f"because: {note}"
        assert since.startswith("scheduled by the run of ")
        assert since.endswith(" has left it so (nothing to do)")


@cases(
    "ahead fired workers when",
    ("future", 480, False, 1, "in 8 min"),
    ("future-without-worker", 480, False, 0, "in 8 min"),
    ("due", -2, False, 1, "due, about to be queued"),
    ("fired", -60, True, 1, "due, about to be queued"),
    ("overdue", -60, False, 1, "overdue since 60.0 s: the next sweep queues it"),
    ("fired-without-worker", -60, True, 0, f"due since 60.0 s: {NOBODY}"),
    ("due-without-worker", -60, False, 0, f"due since 60.0 s: {NOBODY}"),
)
def test_a_scheduled_wish_shows_when_it_is_queued(ahead: float, fired: bool, workers: int, when: str) -> None:
    pending = Pending("p", workers=workers, scheduled=[scheduled(ahead=ahead, fired=fired)])
    [moment] = timeline.waits([pending], [], NOW)
    assert moment.title.endswith(f", {when} (due)")


def test_the_note_of_the_run_says_what_an_older_version_waits_for() -> None:
    older = scheduled()._replace(wish=Wish(reason=Reason.DUE))
    by = run("machine", "waiting", note="waiting for the Pod", trace=MINE)
    [moment] = timeline.waits([Pending("machine", scheduled=[older])], [by], NOW)
    assert moment.details == ("because: waiting for the Pod",)
    [moment] = timeline.waits([Pending("machine", scheduled=[older])], [], NOW)
    assert moment.details == ()


def test_a_wish_whose_run_is_forgotten_is_compared_by_time() -> None:
    before, after = NOW - timedelta(seconds=1), NOW + timedelta(seconds=1)
    pending = Pending("machine", scheduled=[scheduled()])
    [moment] = timeline.waits([pending], [run("machine", "succeeded", started=before)], NOW)
    assert moment.details == (f"because: {GIVEN_UP}",)
    [moment] = timeline.waits([pending], [run("machine", "succeeded", started=after)], NOW)
    assert moment.details[1].startswith("not needed any more: ")


@pytest.mark.parametrize(
    ("outcome", "waits"),
    [("waiting", True), ("failed", True), ("succeeded", False), ("nothing to do", False)],
)
def test_an_object_that_waits_for_an_event_says_so(outcome: str, waits: bool) -> None:
    runs = [run("loadbalancer", "waiting"), run("loadbalancer", outcome, note="no edge yet")]
    moments = list(timeline.waits([Pending("loadbalancer", workers=1)], runs, NOW))
    title = f"loadbalancer: {outcome}, until something that it depends on changes"
    assert [(one.title, one.details) for one in moments] == [(title, ("because: no edge yet",))] * waits
    assert list(timeline.waits([Pending("p")], [], NOW)) == []


def test_a_report_waits_until_it_is_written() -> None:
    patch = {"lastOperation": {"state": "Succeeded"}}
    [moment] = timeline.unwritten(7, patch, [], NOW)
    assert moment.title == "patch: Succeeded is reported, but not written yet"
    read = Read(stream="INTENTS", subject="intent.k", sequence=7)
    assert timeline.unwritten(7, patch, [run("patch", "failed", reads=[read])], NOW) == [moment]
    assert timeline.unwritten(7, patch, [run("patch", "succeeded", reads=[read])], NOW) == []
    assert timeline.unwritten(0, {}, [], NOW) == []  # never reported


def test_a_failed_call_shows_its_error() -> None:
    error = {"type": "Refused", "message": "not our zone"}
    request = {"do": "delete", "name": "web.example.com", "type": "A"}
    assert output(Call(door="dns", request=request, error=error, effect=True)) == [
        "DNS: delete web.example.com A ✗ Refused: not our zone"
    ]


def test_calls_without_news_are_not_shown() -> None:
    nothing = [
        Call(door="clock", request=None, answer="2026-09-01T10:15:31Z"),
        Call(door="reported", request=None, answer={"sequence": 0, "intent": None}),
        Call(door="shoot", request=None, answer={"labels": {"gardener.cloud/role": None}, "facts": None}),
        Call(door="shoot", request=None, answer={"labels": None, "facts": None}),
        Call(door="twin", request={"name": "web"}),
    ]
    assert output(*nothing) == []


@cases(
    "facts said",
    ("unknown", None, "not there"),
    ("usual", {"failed": False, "technical_id": "shoot--a--b"}, "as usual"),
    ("special", {"failed": True, "force_deletion": True}, "failed, force deletion"),
)
def test_the_shoot_is_shown_where_there_is_one(facts: dict[str, Any] | None, said: str) -> None:
    answer = {"labels": {"gardener.cloud/role": "shoot"}, "facts": facts}
    assert output(Call(door="shoot", request=None, answer=answer)) == [f"its Shoot: {said}"]


def test_reports_and_written_statuses_look_alike() -> None:
    patch = {"lastOperation": {"type": "Create", "state": "Succeeded", "description": "all is well"}}
    assert output(
        Call(door="report", request={"uid": "u", "patch": patch, "event": None}, effect=True),
        Call(door="status", request=patch, effect=True),
    ) == ["report: Create Succeeded: all is well", "status: Create Succeeded: all is well"]


ADDRESS = {"addresses": {"IPv4": "127.0.1.2", "IPv6": "fd00::2"}}
EDGE = {"uid": "u", "digest": "d", "since": "2026-09-01T10:15:31.123+00:00", "backends": ["a", "b"]}
SERVED = {"loadBalancer": {"ingress": [{"ip": "127.0.1.2", "ports": [{"port": 80, "protocol": "TCP"}]}]}}


@cases(
    "call said",
    (
        "given",
        Call(door="addresses", request={"take": {}}, answer=ADDRESS, effect=True),
        ["addresses: 127.0.1.2, fd00::2"],
    ),
    (
        "not-given",
        Call(door="addresses", request={"take": {}}, answer={"addresses": {}, "note": "used up"}),
        ["addresses: none: used up"],
    ),
    (
        "given-back",
        Call(door="addresses", request={"release": "web"}, answer=["127.0.1.2"]),
        ["addresses: gave back 127.0.1.2"],
    ),
    ("nothing-back", Call(door="addresses", request={"release": "web"}, answer=[]), []),
    ("as-ever", Call(door="addresses", request={"version": "web"}, answer="7"), []),
    (
        "fault-of-a-cloud",
        Call(
            door="cloud",
            request={"account": "aws-012345678901", "call": "machines", "shoot": "one"},
            error={"type": "TransientError", "message": "DependencyViolation: … (played)"},
            effect=True,
        ),
        ["cloud aws ✗ TransientError: DependencyViolation: … (played)"],
    ),
    ("call-to-a-cloud", Call(door="cloud", request={"account": "aws-1"}, answer=False), []),
    (
        "inventory-written",
        Call(door="inventory", request={"write": "shoots.one", "content": {"objects": [{}]}}, answer=True),
        ["inventory: shoots.one objects: 1"],
    ),
    (
        "inventory-claimed",
        Call(door="inventory", request={"use": "existing.aws-1.vpc.a", "by": "one"}, answer=True),
        ["inventory: existing.aws-1.vpc.a used by one"],
    ),
    (
        "inventory-removed",
        Call(door="inventory", request={"write": "shoots.one", "content": None}, answer=True),
        ["inventory: shoots.one removed"],
    ),
    (
        "inventory-as-ever",
        Call(door="inventory", request={"write": "shoots.one", "content": {}}, answer=False),
        [],
    ),
    (
        "inventory-lacks",
        Call(door="inventory", request={"read": "existing.aws-1.vpc.a"}),
        ["inventory: has no existing.aws-1.vpc.a"],
    ),
    ("no-edge", Call(door="edge", request=None), ["edge: does not carry it yet"]),
    ("edge", Call(door="edge", request=None, answer=EDGE), ["edge: as of 10:15:31.123, backends a, b"]),
    (
        "edge-with-problems",
        Call(
            door="edge",
            request=None,
            answer={**EDGE, "backends": [], "lacking": "no node", "problems": {"80/TCP": "taken"}},
        ),
        ["edge: as of 10:15:31.123, backends no node; 80/TCP: taken"],
    ),
    (
        "report",
        Call(
            door="report",
            effect=True,
            request={
                "uid": "u",
                "patch": SERVED,
                "events": [{"type": "Normal", "reason": "Ensured", "note": "all is well"}],
            },
        ),
        ["report: 127.0.1.2 80/TCP", "event: Ensured: all is well"],
    ),
    (
        "emptied",
        Call(door="status", request={"loadBalancer": {"ingress": None}}, effect=True),
        ["status: no address"],
    ),
)
def test_calls_of_service_runs_are_shown(call: Call, said: list[str]) -> None:
    assert output(call) == said


def test_a_second_delivery_is_shown() -> None:
    [moment] = timeline.moments([], [run(delivery=2, waited=1.5)])
    assert moment.details[0] == "event; waited 1.5 s, took 12 ms, by host/1, delivery 2"
