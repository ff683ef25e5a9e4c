"""How hostile objects ended: each has to succeed, or its status or an Event has to say what is wrong."""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Iterable

from bus import streams, subjects
from bus.messages import Result, RunRecord
from bus.transport import consumers
from bus.transport.connection import Bus
from tests.support.hostile.manifests import Hostile
from tools.bench.client import Client
from windowbox.errors import Refused
from windowbox.models.extensions import OPERATION
from windowbox.models.objects import Object
from windowbox.models.refs import INGRESSES, RUNTIME, SERVICES, ObjectRef, Resource

_EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
_BUG = re.compile(r"[A-Za-z]*(Error|Exception|ExceptionGroup): |.*(NoneType|has no attribute|Traceback)")
_LONGEST = 2500
"""Characters of an error, with all that is wrong."""
_BEGUN = re.compile(r"(Error \w+|Reconciling( the)?) \w+:? ?")
_REMEDY = 12
"""Characters that a description has at least, without its usual beginning."""

Runs = dict[str, RunRecord]
"""The last run of each object, by subject."""


async def problems(client: Client, bus: Bus, made: Iterable[Hostile], patience: float) -> list[str]:
    """The objects without a clear end after `patience` seconds, and the runs that failed with a bug."""
    left, deadline = list(made), time.monotonic() + patience
    while True:
        runs = await _runs(bus)
        warnings = await _warnings(client)
        wrong = {one: why for one in left if (why := await _problem(client, one, runs, warnings))}
        if not wrong or time.monotonic() > deadline:
            bugs = [(key, run.note) for key, run in runs.items() if run.outcome == Result.FAILED]
            failed = [f"{key}: {note:.300}" for key, note in bugs if _BUG.match(note)]
            return [f"{one}: {why}" for one, why in wrong.items()] + failed
        left = list(wrong)
        await asyncio.sleep(2)  # no event says that all have ended


async def _problem(
    client: Client, one: Hostile, runs: Runs, warnings: dict[tuple[str, str], list[str]]
) -> str | None:
    try:
        found = Object(await client.request("GET", one.path))
    except Refused as error:
        return f"gone: {error}"
    ref = ObjectRef(RUNTIME, one.row.resource.id, one.namespace, one.name)
    run = runs.get(subjects.run(one.row.pool, subjects.key(ref)))
    if run is None:
        return "no run"
    if one.row.resource in (SERVICES, INGRESSES):
        silent = run.outcome in (Result.WAITING, Result.FAILED) and not warnings[one.namespace, one.name]
        return f"{run.outcome}, but no Event says why" if silent else None
    if one.body["metadata"]["annotations"].get(OPERATION) != "reconcile" and not found.last_operation:
        return None  # no reconcile was requested yet
    return _unclear(found)


def _unclear(found: Object) -> str | None:
    """Why a status is unclear; None if it is clear."""
    last = found.last_operation
    said = str((found.status.get("lastError") or {}).get("description") or last.get("description") or "")
    match last.get("state"):
        case "Succeeded":
            return None
        case "Error" | "Processing" if len(_BEGUN.sub("", said, count=1)) < _REMEDY or _BUG.match(said):
            return f"unclear: {said!r}"
        case "Error" | "Processing" if len(said) > _LONGEST:
            return f"its status has {len(said)} characters of {said[:80]!r}"
        case "Error" | "Processing":
            return None
    return f"its status is {dict(last)!r:.300}"


async def _runs(bus: Bus) -> Runs:
    found = consumers.snapshot(bus, streams.JOURNAL, ["run.>"])
    return {stored.subject: RunRecord.model_validate_json(stored.data) async for stored in found}


async def _warnings(client: Client) -> dict[tuple[str, str], list[str]]:
    """The reasons of the warnings about each object."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for event in (await client.request("GET", _EVENTS.path()))["items"]:
        about = event["regarding"]
        if event["type"] == "Warning":
            found[about.get("namespace", ""), about["name"]].append(event["reason"])
    return found
