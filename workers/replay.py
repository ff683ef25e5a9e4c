"""Replays recorded runs with today's code: outside calls are answered from the recording."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, NamedTuple, TypeVar, cast

import pydantic_core

from bus import streams, subjects
from bus.messages import Call, Result, RunRecord
from bus.recordings import Recording
from windowbox import errors
from windowbox.models.objects import Object
from windowbox.models.refs import ObjectRef
from windowbox.settings.bussettings import Deciding
from windowbox.settings.dnssettings import DnsSettings, ZoneSettings
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.core import pools, serving
from workers.core.cloudfaults import CloudFaults
from workers.core.lifecycle.world import World
from workers.core.owned.targets import TargetClusters
from workers.core.reconcile import Reconciler, Request, reconcile
from workers.core.reports import Reports
from workers.core.serving import Common, WorkSettings
from workers.dns.ingress.ingressreconciler import IngressReconciler
from workers.kinds.heartbeat.heartbeatpool import HeartbeatReconciler
from workers.loadbalancer.service.servicedoors import ServiceDoors
from workers.loadbalancer.service.servicereconciler import ServiceReconciler
from workers.machines.machine import machinepool
from workers.machines.machine.machineviews import MachineViews

T = TypeVar("T")

_AT_ONCE = ("apply", "delete")
_LONGEST_REQUEST = 120

POOLS = ("loadbalancer", "ingress", "heartbeat", "machine", *pools.EXTENSIONS)
"""The pools whose runs can be replayed."""


class Effect(NamedTuple):
    """A recorded change: the door and the request."""

    door: str
    request: Any


@dataclass(frozen=True)
class Difference:
    """A run whose replay differs from its recording."""

    run: RunRecord
    recorded: list[Effect]
    now: list[Effect]
    outcome: str
    """The outcome of the replay."""
    stopped: str = ""
    """Why the replay stopped before its end, if it did."""


@dataclass
class Replay:
    """The result of a replay."""

    replayed: int = 0
    left_out: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Runs that cannot be replayed, by reason."""
    differences: list[Difference] = field(default_factory=list)


class Unanswered(Exception):
    """The replay makes a call without a recorded answer."""


class Unforeseen(Exception):
    """A recorded error that was a bug."""


class ReplayRecorder:
    """Answers the calls of a replayed run from its recording."""

    def __init__(self, recording: Recording, run: RunRecord) -> None:
        self._objects = recording.objects
        self._ref = subjects.ref(run.key)
        self._reads: dict[str, deque[int]] = defaultdict(deque)
        for read in run.reads:
            self._reads[read.subject].append(read.sequence)
        self._calls = list(run.calls)
        self._answered: list[Call] = []
        self.effects: list[Effect] = []
        """The effects of the replay so far."""

    async def read(self, ref: ObjectRef) -> Object | None:
        sequences = self._reads[subjects.seen(ref)]
        if not sequences:
            raise Unanswered(f"it reads {ref}, which it did not read then")
        # A further read gets the last recorded version.
        sequence = sequences.popleft() if len(sequences) > 1 else sequences[0]
        if not sequence:
            return None
        seen = self._objects[sequence].announcement()
        return None if seen.gone else seen.object()

    async def call(
        self, door: str, request: Any, act: Callable[..., Awaitable[Any]], *args: Any, effect: bool = False
    ) -> Any:
        expected = _json(request)
        if effect:
            self.effects.append(Effect(door, expected))
        noted = await self._noted(door, expected, effect)
        if noted.error is not None:
            raise _raised(noted.error)
        return noted.answer

    def wrote(self, ref: ObjectRef, version: str) -> None: ...

    async def time(self) -> datetime:
        return datetime.now(UTC)  # what is recorded has the recorded time

    async def secret(self, ref: ObjectRef, parse: Callable[[Mapping[str, bytes]], T]) -> T | None:
        async def act() -> None: ...

        await self.call("secret", {"namespace": ref.namespace, "name": ref.name}, act)
        return None

    async def _noted(self, door: str, request: Any, effect: bool) -> Call:
        """The recorded call with the same request, or else the most similar one.

        A changed effect gets the answer of the recorded one: the comparison shows the change anyway. A read
        may name more or fewer fields than the recorded one, but must not contradict it.
        """
        same_door = [call for call in self._calls if call.door == door and call.effect == effect]
        found = next((call for call in same_door if call.request == request), None)
        if found is None:
            near = (call for call in same_door if effect or _agree(call.request, request))
            found = next(near, None)
        if found is not None:
            self._calls.remove(found)
            self._answered.append(found)
            return found
        for call in reversed(self._answered):
            if not effect and (call.door, call.request) == (door, request):
                return call  # a repeated read: nothing has changed since
        if door == "patience":
            return Call(door=door, request=request, answer=0.0)  # recordings from before the backoff existed
        if door == "get" and request == str(self._ref):
            # The API's answer is unknown; most likely it was the last version on the bus.
            object = await self.read(self._ref)
            return Call(door=door, request=request, answer=object and dict(object.raw))
        text = pydantic_core.to_json(request).decode()
        asked = text if len(text) <= _LONGEST_REQUEST else text[:_LONGEST_REQUEST] + "…"
        raise Unanswered(f"it asks {door} {asked}, which it did not ask then")


async def replayed(recording: Recording, instead: Mapping[str, Reconciler] | None = None) -> Replay:
    """Replay all runs with the recorded settings and today's code, or with `instead`, by pool."""
    players: dict[str, dict[str, Reconciler]] = {}
    """By the deciding settings, as JSON."""
    result = Replay()
    for run in recording.runs:
        if reason := _unplayable(recording, run):
            result.left_out[reason] += 1
            continue
        result.replayed += 1
        settings = recording.header.settings_of(run)
        text = settings.model_dump_json()
        if text not in players:
            players[text] = {**_players(settings), **(instead or {})}
        difference = await _compared(recording, run, players[text][run.pool])
        if difference:
            result.differences.append(difference)
    return result


def _players(settings: Deciding) -> dict[str, Reconciler]:
    common, nowhere = common_of(settings), cast(Any, _Nowhere())
    return {
        "loadbalancer": service_reconciler(common),
        "ingress": IngressReconciler(common.clusters, common.world, common.targets, nowhere),
        "machine": machinepool.reconciler(common, MachineViews(common.bus)),
        "heartbeat": HeartbeatReconciler(common.bus, common.clusters, common.world, common.kinds.heartbeat),
        **{pool: serving.life_cycle(common, pools.serving(common, pool)) for pool in pools.EXTENSIONS},
    }


def common_of(settings: Deciding) -> Common:
    """The shared parts of pools, without any connection: all answers come from the recording."""
    nowhere = cast(Any, _Nowhere())
    zones = [ZoneSettings(servers=["nowhere.invalid"], **zone.model_dump()) for zone in settings.zones]
    return Common(
        bus=nowhere,
        clusters=nowhere,
        registry=nowhere,
        world=World(nowhere, nowhere),
        targets=TargetClusters(nowhere, nowhere),
        nameserver=nowhere,
        closing=nowhere,
        work=cast(WorkSettings, settings),  # the others are read only by processes
        kinds=settings.kinds,
        dns=DnsSettings(zones=zones),
        loadbalancer=LoadBalancerSettings.model_validate(settings.balancing.model_dump()),
    )


def service_reconciler(
    common: Common, reconciler: type[ServiceReconciler] = ServiceReconciler
) -> ServiceReconciler:
    nowhere = cast(Any, _Nowhere())
    doors = ServiceDoors(nowhere, nowhere, nowhere, nowhere, nowhere)
    return reconciler(doors, common.loadbalancer, CloudFaults(nowhere))


async def _compared(recording: Recording, run: RunRecord, reconciler: Reconciler) -> Difference | None:
    recorder = ReplayRecorder(recording, run)
    stopped, outcome = "", ""
    try:
        ref = subjects.ref(run.key)
        reports = Reports(cast(Any, _Nowhere()), ref, recorder)
        outcome = (await reconcile(reconciler, Request(ref, run.wish, recorder, reports))).result
    except Unanswered as error:
        outcome, stopped = "stopped", str(error)
    except Exception as error:  # what the run raised then, or a bug since
        # As in bus.workqueue.pool.
        outcome = Result.FAILED
        stopped = "" if run.outcome is Result.FAILED else f"{type(error).__name__}: {error}"
    changing = [call for call in run.calls if call.effect]
    then = [Effect(call.door, call.request) for call in changing]
    groups = [call.at_once for call in changing] if any(call.at_once for call in run.calls) else None
    same = _comparable(then, groups) == _comparable(recorder.effects, groups)
    if same and outcome == run.outcome and not stopped:
        return None
    return Difference(run, then, recorder.effects, outcome, stopped)


def _comparable(effects: list[Effect], groups: list[int] | None) -> list[Effect]:
    """Effects in a deterministic order: concurrent ones, by `groups`, are sorted.

    Older recordings have no groups: there, all writes and deletions count as concurrent.
    """
    if groups is None:
        groups = [int(effect.door in _AT_ONCE) for effect in effects]
    elif len(groups) != len(effects):
        return effects  # not the same anyway
    numbered = groupby(zip(groups, effects, strict=True), key=lambda pair: pair[0])
    return [
        effect
        for at_once, pairs in numbered
        for _, effect in (sorted(pairs, key=pydantic_core.to_json) if at_once else pairs)
    ]


def _unplayable(recording: Recording, run: RunRecord) -> str:
    """Why this run cannot be replayed; empty if it can."""
    if run.pool not in POOLS:
        return f"of pool {run.pool}, whose runs only write down what others decided"
    if run.calls_omitted:
        return "their record was too large for the bus"
    for read in run.reads:
        if read.stream != streams.OBJECTS or not read.sequence:
            continue
        found = recording.objects.get(read.sequence)
        if found is None or found.subject != read.subject:
            return "object versions no longer on the bus"
        if found.announcement().omitted:
            return "objects too large for the bus"
    return ""


def _raised(error: Mapping[str, Any]) -> Exception:
    """The recorded error, as an exception of its class."""
    name, message = str(error["type"]), str(error["message"])
    if name in ("CancelledError", "TimeoutError"):
        return TimeoutError(message)
    known = getattr(errors, name, None)
    if not (isinstance(known, type) and issubclass(known, errors.WindowboxError)):
        return Unforeseen(f"{name}: {message}")
    codes = tuple(error.get("codes") or ())
    if issubclass(known, errors.TransientError | errors.Waiting):
        return known(message, retry_after=error.get("retry_after"), codes=codes)
    return known(message, codes=codes)


def _agree(one: Any, other: Any) -> bool:
    """Whether both have the same values in the fields that they share."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return False
    shared = one.keys() & other.keys()
    return bool(shared) and all(one[name] == other[name] for name in shared)


def _json(value: Any) -> Any:
    return pydantic_core.from_json(pydantic_core.to_json(value))


class _Nowhere:
    """Stands for connections: any use is a bug."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a run that is played back reached for {name!r} past its doors")
