"""Recorded days, run again."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from bus import recordings, subjects
from bus.messages import BODY, Call, EventIntent, Result
from bus.outcomes import Done, Outcome, Unfinished
from commands.cli import cli
from tests.support.cases import cases
from tests.support.samples import BALANCERS, DEMO, FILES, recording, run, seen
from windowbox.models.gardener.dnsrecord import DNSRecordSpec
from windowbox.models.objects import Object
from windowbox.models.recordsets import RecordKey, RecordSet
from windowbox.models.refs import HEARTBEATS, ObjectRef
from windowbox.settings.bussettings import Deciding
from workers import replay
from workers.core import pools, serving
from workers.core.lifecycle.actuators import Run, Status
from workers.core.lifecycle.lifecycle import LifeCycle
from workers.core.owned.targets import concurrently
from workers.core.reconcile import Request
from workers.core.recorder import Recorder
from workers.dns.record import records
from workers.dns.record.actuator import DNSRecordActuator
from workers.dns.record.cloudzones import HostedZones
from workers.loadbalancer.service import eventmessages
from workers.loadbalancer.service.servicereconciler import Seen, ServiceReconciler

LEASE = subjects.key(ObjectRef("runtime", HEARTBEATS.id, "windowbox-system", "gardener-extension-heartbeat"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
async def test_recorded_days_replay_without_differences(file: Path) -> None:
    result = await replay.replayed(recordings.read(file))
    assert result.differences == []
    assert result.replayed >= 50
    assert result.replayed > 10 * sum(result.left_out.values())


def test_the_demo_covers_every_operation() -> None:
    notes = {(run.outcome, run.note) for run in recordings.read(DEMO).runs}
    succeeded = {note for outcome, note in notes if outcome == "succeeded"}
    assert succeeded == {"Create", "Reconcile", "Delete", "Migrate", "Restore"}
    assert "failed" in {outcome for outcome, _ in notes}


async def test_another_ttl_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    rightly = records.wanted

    def wanted(spec: DNSRecordSpec, zone: str) -> RecordSet:
        return dataclasses.replace(rightly(spec, zone), ttl=1)

    monkeypatch.setattr(records, "wanted", wanted)
    demo = recordings.read(DEMO)
    changed = {id(d.run) for d in (await replay.replayed(demo)).differences}
    assert changed == {id(r) for r in demo.runs if _wrote(r.calls) and id(r) in _playable(demo)}


def acted_by(recorded: recordings.Recording, actuator: type[DNSRecordActuator]) -> LifeCycle:
    """The life cycle of DNSRecords with another actuator."""
    common = replay.common_of(recorded.header.settings)
    elsewhere = cast(Any, common.nameserver)
    acting = actuator(common.nameserver, common.dns, HostedZones(elsewhere), elsewhere, elsewhere)
    return serving.life_cycle(
        common, dataclasses.replace(pools.serving(common, "dnsrecord"), actuator=acting)
    )


class Forgetful(DNSRecordActuator):
    """Leaves behind what it should remove."""

    async def delete(self, run: Run) -> None: ...


async def test_a_forgotten_deletion_is_noticed() -> None:
    demo = recordings.read(DEMO)
    result = await replay.replayed(demo, {"dnsrecord": acted_by(demo, Forgetful)})
    assert result.differences
    for difference in result.differences:
        assert difference.run.note in ("Delete", "Migrate")
        gone = [effect for effect in difference.recorded if effect not in difference.now]
        assert {effect.door for effect in gone} == {"dns"}


class Sneaky(DNSRecordActuator):
    """Changes the world behind the back of its run."""

    async def reconcile(self, run: Run) -> Status:
        await self._nameserver.delete("local.gardener.cloud", RecordKey("a", "A"))
        return await super().reconcile(run)


async def test_a_call_past_the_recorder_is_noticed() -> None:
    demo = recordings.read(DEMO)
    result = await replay.replayed(demo, {"dnsrecord": acted_by(demo, Sneaky)})
    assert "'delete' past its doors" in result.differences[0].stopped


def test_the_load_balancers_succeed_and_wait() -> None:
    outcomes = {run.outcome for run in recordings.read(BALANCERS).runs}
    assert {Result.SUCCEEDED, Result.WAITING} <= outcomes


class Clinging(ServiceReconciler):
    """Never cleans up after a deleted Service."""

    async def _clean_up(self, seen: Seen, ours: Collection[str] | None = None) -> Outcome:
        return Unfinished("waiting for the edge to release it")


class Hasty(ServiceReconciler):
    """Allocates no address, and reports success."""

    async def _ensure(self, seen: Seen) -> Outcome:
        await self._add_finalizer(seen)
        return Done("ensured")


@cases("broken door outcomes", ("finalizers-stay", Clinging, "patch", {"succeeded"}),
        ("no-addresses", Hasty, "addresses", {"succeeded", "waiting"}))  # fmt: skip
async def test_a_broken_run_of_a_service_is_noticed(
    broken: type[ServiceReconciler], door: str, outcomes: set[str]
) -> None:
    recorded = recordings.read(BALANCERS)
    instead = {"loadbalancer": replay.service_reconciler(replay.common_of(recorded.header.settings), broken)}
    result = await replay.replayed(recorded, instead)
    assert {difference.run.outcome for difference in result.differences} == outcomes
    assert door in {
        effect.door
        for difference in result.differences
        for effect in difference.recorded
        if effect not in difference.now
    }


async def test_another_event_message_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eventmessages, "ensured", eventmessages.updated)
    result = await replay.replayed(recordings.read(BALANCERS))
    assert result.differences
    for difference in result.differences:
        assert [effect.door for effect in difference.now if effect not in difference.recorded] == ["report"]


async def test_a_run_is_judged_by_the_settings_of_its_process() -> None:
    demo = recordings.read(DEMO)
    then = demo.header.settings
    since = dataclasses.replace(demo, header=demo.header.model_copy(update={"settings": Deciding()}))
    assert (await replay.replayed(since)).differences
    processes = {run.process: then for run in demo.runs}
    header = since.header.model_copy(update={"processes": processes})
    assert (await replay.replayed(dataclasses.replace(since, header=header))).differences == []


class Maker:
    """Makes some things, of which each has to be claimed before it is applied."""

    def __init__(self, *names: str, one_by_one: bool = False) -> None:
        self._names = names
        self._one_by_one = one_by_one

    async def reconcile(self, request: Request) -> Outcome:
        for names in ([name] for name in self._names) if self._one_by_one else [self._names]:
            await concurrently(*(self._make(name, request.recorder) for name in names))
        return Done()

    async def quarantine_patch(self, request: Request, found: Object, event: EventIntent) -> None: ...

    async def _make(self, name: str, recorder: Recorder) -> None:
        for door in ("claim", "apply"):
            await recorder.call(door, name, self._nothing, effect=True)

    async def _nothing(self) -> None: ...


def made(*calls: tuple[str, str, int]) -> recordings.Recording:
    return recording([run((0,), tuple(Call(door=d, request=r, effect=True, at_once=n) for d, r, n in calls))])


@cases(
    "calls same",
    ("at-once", [("claim", "b", 1), ("apply", "b", 1), ("claim", "a", 1), ("apply", "a", 1)], True),
    ("in-turn", [("claim", "b", 1), ("apply", "b", 1), ("claim", "a", 2), ("apply", "a", 2)], False),
    ("one-is-missing", [("claim", "b", 1), ("apply", "b", 1), ("claim", "a", 1)], False),
    ("another", [("claim", "b", 1), ("apply", "b", 1), ("claim", "a", 1), ("apply", "c", 1)], False),
)
async def test_concurrent_effects_are_compared_as_a_set(
    calls: list[tuple[str, str, int]], same: bool
) -> None:
    result = await replay.replayed(made(*calls), {"dnsrecord": Maker("a", "b")})
    assert (result.differences == []) is same


async def test_sequential_effects_are_compared_in_order() -> None:
    calls = [("claim", "b", 1), ("apply", "b", 1), ("claim", "a", 2), ("apply", "a", 2)]
    rightly = await replay.replayed(made(*calls), {"dnsrecord": Maker("b", "a", one_by_one=True)})
    wrongly = await replay.replayed(made(*calls), {"dnsrecord": Maker("a", "b", one_by_one=True)})
    assert (len(rightly.differences), len(wrongly.differences)) == (0, 1)


def test_nothing_is_logged_of_a_recorded_day(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    unwell = recording([
        run(
            (0,),
            (
                Call(door="clock", request=None, answer="2026-09-01T10:15:30Z"),
                Call(door="get", request=str(subjects.ref(LEASE)), answer=None),
                Call(door="signs", request=None, answer="nobody watches"),
            ),
            pool="heartbeat",
            key=LEASE,
            outcome="waiting",
        )
    ])  # fmt: skip
    recordings.write(tmp_path / "unwell.wbx", unwell)
    asyncio.run(replay.replayed(unwell))
    assert "the heartbeat is not renewed: nobody watches" in caplog.text
    caplog.clear()
    shown = CliRunner().invoke(cli, ["replay", str(tmp_path / "unwell.wbx")])
    assert shown.output == "1 runs replayed, none with differences\n"
    assert caplog.text == ""


REPORTED = Call(door="reported", request=None, answer={"intent": None, "sequence": 0})


async def test_a_different_outcome_without_effects_is_noticed() -> None:
    made = recording([run((0,), (REPORTED,), outcome="succeeded")])
    [difference] = (await replay.replayed(made)).differences
    assert (difference.run.outcome, difference.outcome) == ("succeeded", "nothing to do")


LARGE = seen(4)
LARGE = LARGE.model_copy(update={"headers": LARGE.headers | {BODY: "omitted"}})


@cases(
    "made reason",
    ("forgotten", recording([run((3,))]), "object versions no longer on the bus"),
    ("large-object", recording([run((4,))], LARGE), "objects too large for the bus"),
    ("large-record", recording([run(calls_omitted=True)]), "their record was too large for the bus"),
    (
        "another-pool",
        recording([run(pool="patch")]),
        "of pool patch, whose runs only write down what others decided",
    ),
)
async def test_a_run_that_cannot_be_judged_is_left_out_and_counted(
    made: recordings.Recording, reason: str
) -> None:
    result = await replay.replayed(made)
    assert (result.replayed, result.differences) == (0, [])
    assert result.left_out == {reason: 1}


def _wrote(calls: list[Call]) -> bool:
    return any(call.door == "dns" and call.request["do"] == "replace" for call in calls)


def _playable(demo: recordings.Recording) -> set[int]:
    return {id(run) for run in demo.runs if all(read.sequence in demo.objects for read in run.reads)}
