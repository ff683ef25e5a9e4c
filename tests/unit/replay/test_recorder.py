"""What one run gets to see when it is played back."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from bus.messages import Call, Reason, Wish
from bus.transport.connection import WrongSequence
from bus.workqueue.pool import DeliveryHold, Item
from tests.support.cases import cases
from tests.support.samples import KEY, recording, run, seen
from windowbox import errors
from windowbox.errors import Conflict, Malformed, Missing, TransientError, Unreachable, WindowboxError
from windowbox.models.refs import DNSRECORDS, ObjectRef
from workers.core.owned.targets import concurrently
from workers.core.recorder import error_record
from workers.core.recorder_live import LiveRecorder
from workers.replay import ReplayRecorder, Unanswered, Unforeseen

WEB = ObjectRef("runtime", DNSRECORDS.id, "demo", "web")
ERRORS = [
    found for found in vars(errors).values() if isinstance(found, type) and issubclass(found, WindowboxError)
]


async def nothing() -> None:
    raise AssertionError("a call was made when it should have been answered from the recording")


def playing(*calls: Call) -> ReplayRecorder:
    return ReplayRecorder(recording([]), run(calls=calls))


async def raised(error: BaseException) -> Exception:
    """What a door raises when played back, at which `error` was raised."""
    noted = Call.model_validate_json(Call(door="dns", request={}, error=error_record(error)).encoded())
    with pytest.raises(Exception) as caught:
        await playing(noted).call("dns", {}, nothing)
    return caught.value


@pytest.mark.parametrize("kind", ERRORS)
async def test_replayed_errors_have_their_recorded_class(kind: type[WindowboxError]) -> None:
    error = await raised(kind("no", codes=("ERR_INFRA_QUOTA_EXCEEDED",)))
    assert (type(error), str(error)) == (kind, "no")
    assert isinstance(error, WindowboxError)
    assert error.codes == ("ERR_INFRA_QUOTA_EXCEEDED",)


async def test_an_adapters_error_replays_as_its_base_class() -> None:
    assert type(await raised(WrongSequence("taken"))) is Conflict


async def test_a_replayed_error_keeps_its_retry_delay() -> None:
    error = await raised(Unreachable("away", retry_after=7.5))
    assert isinstance(error, TransientError)
    assert error.retry_after == 7.5


async def test_a_replayed_error_keeps_the_codes_of_its_cause() -> None:
    error = TransientError("later")
    error.__cause__ = Malformed("nonsense")
    again = await raised(error)
    assert isinstance(again, TransientError)
    assert again.codes == ("ERR_CONFIGURATION_PROBLEM",)


async def test_a_recorded_bug_replays_as_unforeseen() -> None:
    assert type(await raised(KeyError("spec"))) is Unforeseen


async def test_a_call_ended_by_a_deadline_replays_as_timeout() -> None:
    item = Item(KEY, Wish(reason=Reason.EVENT), 1, 1, DeliveryHold(10))
    recorder = LiveRecorder(cast(Any, None), cast(Any, None), item)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await recorder.call("dns", {"do": "delete"}, asyncio.Event().wait, effect=True)
    again = ReplayRecorder(recording([]), run(calls=tuple(item.calls)))
    with pytest.raises(TimeoutError):
        await again.call("dns", {"do": "delete"}, nothing, effect=True)


async def test_concurrent_calls_are_recorded_as_groups() -> None:
    item = Item(KEY, Wish(reason=Reason.EVENT), 1, 1, DeliveryHold(10))
    recorder = LiveRecorder(cast(Any, None), cast(Any, None), item)

    async def make(name: str) -> None:
        for door in ("claim", "apply"):
            await recorder.call(door, name, lambda: asyncio.sleep(0), effect=True)

    await make("home")
    await concurrently(make("a"), concurrently(make("b"), make("c")))
    await concurrently(make("d"))
    assert [(call.request, call.at_once) for call in item.calls[:2]] == [("home", 0), ("home", 0)]
    assert {(call.request, call.at_once) for call in item.calls[2:]} == {
        ("a", 1),
        ("b", 1),
        ("c", 1),
        ("d", 2),
    }


async def test_equal_reads_get_recorded_answers_in_order() -> None:
    recorder = playing(
        Call(door="clock", request=None, answer="first"), Call(door="clock", request=None, answer="second")
    )
    answers = [await recorder.call("clock", None, nothing) for _ in range(3)]
    assert answers == ["first", "second", "second"]


async def test_a_changed_effect_is_answered_like_the_recorded_one() -> None:
    recorder = playing(Call(door="patch", request={"a": 1}, answer={"version": 8}, effect=True))
    assert await recorder.call("patch", {"a": 2}, nothing, effect=True) == {"version": 8}
    assert recorder.effects == [("patch", {"a": 2})]


async def test_a_read_without_a_recorded_answer_stops_the_run() -> None:
    with pytest.raises(Unanswered, match="twin"):
        await playing().call("twin", {"name": "web"}, nothing)
    recorder = playing(Call(door="twin", request={"name": "api"}, answer=None))
    with pytest.raises(Unanswered, match="twin"):
        await recorder.call("twin", {"name": "web"}, nothing)


async def test_a_read_with_more_fields_is_answered() -> None:
    recorder = playing(Call(door="twin", request={"name": "web"}, answer="dnsrecords demo/other"))
    answer = await recorder.call("twin", {"zone": "local.gardener.cloud", "name": "web"}, nothing)
    assert answer == "dnsrecords demo/other"


async def test_a_new_effect_in_a_replay_is_recorded_first() -> None:
    recorder = playing()
    with pytest.raises(Unanswered):
        await recorder.call("dns", {"values": ("10.0.0.1",)}, nothing, effect=True)
    assert recorder.effects == [("dns", {"values": ["10.0.0.1"]})]


async def test_only_the_absence_of_a_secret_is_replayed() -> None:
    asked = {"namespace": "demo", "name": "key"}
    ref = ObjectRef("runtime", "secrets", "demo", "key")
    there = playing(Call(door="secret", request=asked, answer="«secret demo/key»"))
    assert await there.secret(ref, lambda data: data) is None
    away = playing(Call(door="secret", request=asked, error=error_record(Missing("no Secret"))))
    with pytest.raises(Missing):
        await away.secret(ref, lambda data: data)


async def test_replayed_api_reads_return_recorded_bus_state() -> None:
    recorder = ReplayRecorder(recording([], seen(3, body={"spec": {"ttl": 1}})), run((3,)))
    assert await recorder.call("get", "dnsrecords demo/web", nothing) == {"spec": {"ttl": 1}}
    with pytest.raises(Unanswered):
        await recorder.call("get", "dnsrecords demo/other", nothing)


async def test_each_read_gets_its_recorded_version() -> None:
    versions = seen(3, body={"spec": {"ttl": 1}}), seen(4, body={"spec": {"ttl": 2}})
    recorder = ReplayRecorder(recording([], *versions), run((3, 4)))
    found = [await recorder.read(WEB) for _ in range(3)]
    assert [object and object.spec["ttl"] for object in found] == [1, 2, 2]


@cases("reads", ("was-not-there", (0,)), ("was-deleted", (5,)))
async def test_a_recorded_absence_is_replayed(reads: tuple[int, ...]) -> None:
    recorder = ReplayRecorder(recording([], seen(5, "DELETED")), run(reads))
    assert await recorder.read(WEB) is None


async def test_an_unrecorded_object_read_stops_the_run() -> None:
    with pytest.raises(Unanswered, match="dnsrecords demo/web"):
        await playing().read(WEB)
