"""How a story is told: from values, without any server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bus.messages import Call, Read, Reason, RunRecord, Wish
from windowbox.commands import timeline
from windowbox.commands.timeline import Pending

NOW = datetime(2026, 9, 1, 10, 15, 31, tzinfo=UTC)
EVENT = Wish(reason=Reason.EVENT)


def run(pool: str = "dnsrecord", outcome: str = "succeeded", **more: Any) -> RunRecord:
    return RunRecord(
        pool=pool, key="k", wish=EVENT, wish_sequence=1, delivery=more.pop("delivery", 1), started=NOW,
        seconds=0.012, process="host/1", outcome=outcome, **more,
    )  # fmt: skip


def told(*calls: Call) -> list[str]:
    [moment] = timeline.moments([], [run(calls=list(calls))])
    return list(moment.details[1:])


@pytest.mark.parametrize(
    ("pending", "why"),
    [
        pytest.param(Pending("p", EVENT, NOW, "in hand", 1), "a worker is at it", id="in-hand"),
        pytest.param(
            Pending("p", EVENT, NOW, "waiting", 1), "queued, waiting for a worker to be free", id="queued"
        ),
        pytest.param(
            Pending("p", EVENT, NOW, "waiting", 0), "no process works for pool p; start one", id="no-worker"
        ),
        pytest.param(
            Pending("p", EVENT, NOW, "none", 1), "not queued; the next sweep queues it", id="lost-item"
        ),
    ],
)
def test_a_wish_waits_for_a_reason(pending: Pending, why: str) -> None:
    [moment] = timeline.waits([pending], [], NOW + timedelta(seconds=3))
    assert moment.title == f"p: wished for since 3.0 s (event): {why}"


@pytest.mark.parametrize(
    ("pool", "outcome", "why"),
    [
        ("local-ext-shoot", "succeeded", "no failure: it is reconciled periodically"),
        ("heartbeat", "renewed", "no failure: it is reconciled periodically"),
        ("heartbeat", "held back", "because: so it is"),
        ("ingress", "waiting", "because: so it is"),
        ("ingress", "ensured", "left from an earlier wait; what was waited for has come since"),
    ],
)
def test_a_later_look_has_a_reason(pool: str, outcome: str, why: str) -> None:
    pending = Pending(pool, later=EVENT, due=NOW + timedelta(seconds=30))
    [moment] = timeline.waits([pending], [run(pool, outcome, note="so it is")], NOW)
    assert moment.details == (why,)


def test_who_is_not_wished_for_does_not_wait() -> None:
    assert list(timeline.waits([Pending("p")], [], NOW)) == []


def test_a_report_waits_until_it_is_written() -> None:
    patch = {"lastOperation": {"state": "Succeeded"}}
    [moment] = timeline.unwritten(7, patch, [], NOW)
    assert moment.title == "patch: Succeeded is reported, but not written yet"
    read = Read(stream="INTENTS", subject="intent.k", sequence=7)
    assert timeline.unwritten(7, patch, [run("patch", "again", reads=[read])], NOW) == [moment]
    assert timeline.unwritten(7, patch, [run("patch", "written", reads=[read])], NOW) == []


def test_an_object_that_was_never_reported_waits_for_nothing() -> None:
    assert timeline.unwritten(0, {}, [], NOW) == []


def test_a_call_that_failed_tells_of_it() -> None:
    error = {"type": "Refused", "message": "not our zone"}
    request = {"do": "delete", "name": "web.example.com", "type": "A"}
    assert told(Call(door="dns", request=request, error=error, effect=True)) == [
        "DNS: delete web.example.com A ✗ Refused: not our zone"
    ]


def test_what_is_as_ever_is_not_told() -> None:
    nothing = [
        Call(door="clock", request=None, answer="2026-09-01T10:15:31Z"),
        Call(door="reported", request=None, answer={"sequence": 0, "intent": None}),
        Call(door="shoot", request=None, answer={"labels": {"gardener.cloud/role": None}, "facts": None}),
        Call(door="shoot", request=None, answer={"labels": None, "facts": None}),
        Call(door="twin", request={"name": "web"}),
    ]
    assert told(*nothing) == []


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        pytest.param(None, "not there", id="unknown"),
        pytest.param({"failed": False, "technical_id": "shoot--a--b"}, "as usual", id="usual"),
        pytest.param({"failed": True, "force_deletion": True}, "failed, force deletion", id="special"),
    ],
)
def test_the_shoot_is_told_where_there_is_one(facts: dict[str, Any] | None, said: str) -> None:
    answer = {"labels": {"gardener.cloud/role": "shoot"}, "facts": facts}
    assert told(Call(door="shoot", request=None, answer=answer)) == [f"its Shoot: {said}"]


def test_what_is_reported_and_what_is_written_are_told_alike() -> None:
    patch = {"lastOperation": {"type": "Create", "state": "Succeeded", "description": "all is well"}}
    assert told(
        Call(door="report", request={"uid": "u", "patch": patch, "event": None}, effect=True),
        Call(door="status", request=patch, effect=True),
    ) == ["report: Create Succeeded: all is well", "status: Create Succeeded: all is well"]


ADDRESS = {"addresses": {"IPv4": "127.0.1.2", "IPv6": "fd00::2"}}
EDGE = {"uid": "u", "digest": "d", "since": "2026-09-01T10:15:31.123+00:00", "backends": ["a", "b"]}
SERVED = {"loadBalancer": {"ingress": [{"ip": "127.0.1.2", "ports": [{"port": 80, "protocol": "TCP"}]}]}}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        pytest.param(
            Call(door="addresses", request={"take": {}}, answer=ADDRESS, effect=True),
            ["addresses: 127.0.1.2, fd00::2"],
            id="given",
        ),
        pytest.param(
            Call(door="addresses", request={"take": {}}, answer={"addresses": {}, "note": "used up"}),
            ["addresses: none: used up"],
            id="not-given",
        ),
        pytest.param(
            Call(door="addresses", request={"release": "web"}, answer=["127.0.1.2"]),
            ["addresses: gave back 127.0.1.2"],
            id="given-back",
        ),
        pytest.param(Call(door="addresses", request={"release": "web"}, answer=[]), [], id="nothing-back"),
        pytest.param(Call(door="addresses", request={"version": "web"}, answer="7"), [], id="as-ever"),
        pytest.param(Call(door="edge", request=None), ["edge: does not carry it yet"], id="no-edge"),
        pytest.param(
            Call(door="edge", request=None, answer=EDGE),
            ["edge: as of 10:15:31.123, backends a, b"],
            id="edge",
        ),
        pytest.param(
            Call(door="edge", request=None, answer={**EDGE, "backends": [], "lacking": "no node",
                                                    "problems": {"80/TCP": "taken"}}),
            ["edge: as of 10:15:31.123, backends no node; 80/TCP: taken"],
            id="edge-with-problems",
        ),
        pytest.param(
            Call(door="report", effect=True, request={
                "uid": "u", "patch": SERVED,
                "events": [{"type": "Normal", "reason": "Ensured", "note": "all is well"}],
            }),
            ["report: 127.0.1.2 80/TCP", "event: Ensured: all is well"],
            id="report",
        ),
        pytest.param(
            Call(door="status", request={"loadBalancer": {"ingress": None}}, effect=True),
            ["status: no address"],
            id="emptied",
        ),
    ],
)  # fmt: skip
def test_what_runs_of_services_do_is_told(call: Call, said: list[str]) -> None:
    assert told(call) == said


def test_a_second_delivery_is_told() -> None:
    [moment] = timeline.moments([], [run(delivery=2, waited=1.5)])
    assert moment.details[0] == "event; waited 1.5 s, took 12 ms, by host/1, delivery 2"
