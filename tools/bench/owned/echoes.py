"""What one object of each kind costs: its runs, their causes, and requests to the API."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from bus import intents, streams, subjects
from bus.messages import OPERATION, Announcement, RunRecord
from bus.transport import consumers
from bus.transport.connection import Bus
from sandbox import roles
from sandbox.options import Options
from tools.bench import audit
from tools.bench.client import Client, background, reconcile_request
from tools.bench.report import MachineFacts, Report, say, table
from tools.bench.shoots import SECRET
from tools.bench.world import World, world
from windowbox.kinds import POOLS, RESOURCES
from windowbox.models.refs import MANAGED_RESOURCES, SECRETS, Resource
from windowbox.telemetry import tracing

_EXAMPLES = Path(__file__).parents[3] / "examples"
_SHOWN = (
    *("infrastructure", "bastion", "exposure", "controlplane", "extensions", "operatingsystemconfig"),
    *("worker", "ingress", "backups"),
)
_SHOOT = "shoot--demo--one"
_NETWORKS = {"spec": {"shoot": {"spec": {"networking": {"nodes": "10.9.0.0/16"}}}}}
_ADDRESS = {"status": {"loadBalancer": {"ingress": [{"ip": "172.18.255.224"}]}}}
_HEALTHY = ("ResourcesApplied", "ResourcesHealthy")
_CALM = 1.5
"""Seconds without work after which a phase is over."""


@dataclass(frozen=True)
class Step:
    """One operation on the objects of one example."""

    example: str
    name: str
    runs: dict[str, int]
    """By pool, without those that write statuses."""
    drift: int
    """Runs among them that no client has asked for."""
    patches: int
    reads: int
    writes: int
    causes: dict[str, int]
    """Of runs that no client has asked for: the operation and the kind of the change."""


@dataclass(frozen=True)
class EchoFigures(MachineFacts):
    """The result of `bench echoes`."""

    steps: Sequence[Step]


async def measure() -> Report:
    """Create, reconcile and delete the examples of all kinds, one after the other."""
    async with world("echoes", Options(simulated_nodes=2)) as here:
        await _prepare(here)
        steps = []
        async with background(_manage_resources(here.client), "resource manager"):
            for example in _SHOWN:
                say(example)
                steps += [step async for step in _steps(here, example)]
            say("their deletion")
            for example in reversed(_SHOWN):
                steps.append(await _step(here, example, "delete", _objects(example)))
    shown = table(
        "Runs and requests to the API for the examples of each kind",
        steps,
        {
            "example": lambda one: one.example,
            "operation": lambda one: one.name,
            "runs": lambda one: ", ".join(f"{count} {pool}" for pool, count in one.runs.items()),
            "unasked": lambda one: str(one.drift),
            "reads": lambda one: str(one.reads),
            "writes": lambda one: str(one.writes),
            "statuses": lambda one: str(one.patches),
            "caused by": lambda one: ", ".join(f"{count} {cause}" for cause, count in one.causes.items()),
        },
    )
    return Report(EchoFigures(steps), [shown])


async def _prepare(here: World) -> None:
    for body in _objects("shoot"):
        await _create(here.client, body)
    kubeconfig = roles.provider_kubeconfig(here.sandbox.folder)
    secret = {"metadata": {"name": SECRET}, "stringData": {"kubeconfig": kubeconfig}}
    await here.client.request("POST", SECRETS.path(_SHOOT), secret)
    await here.quiet(calm=_CALM)


async def _steps(here: World, example: str) -> AsyncIterator[Step]:
    objects = _objects(example)
    yield await _step(here, example, "create", objects)
    if example == "ingress":
        yield await _step(here, example, "address", objects)
        return
    yield await _step(here, example, "again", objects)
    if example == "infrastructure":
        yield await _step(here, example, "networks", objects)


async def _step(here: World, example: str, name: str, objects: Sequence[dict[str, Any]]) -> Step:
    """Do one operation, and count what follows from it."""
    here.audit.requests()
    since = await now(here)
    for body in objects:
        await _act(here.client, name, body)
    await here.quiet(calm=_CALM)
    requests = audit.without_events(here.audit.requests())
    found = await runs(here.bus, since)
    asked_by = await _causes(here.bus)
    ours = [run for run in found if run.pool in POOLS and run.pool != "heartbeat"]
    drift = [run for run in ours if run.wish.drift and not run.wish.asked]
    return Step(
        example,
        name,
        dict(Counter(run.pool for run in ours)),
        len(drift),
        sum(run.pool == intents.PATCH for run in found),
        sum(count for what, count in requests.items() if what.split()[0] in ("get", "list")),
        audit.writes(requests),
        dict(Counter(asked_by.get(tracing.trace_id(run.trace), "?") for run in drift)),
    )


async def _act(client: Client, name: str, body: dict[str, Any]) -> None:
    resource, metadata = _resource(body), body["metadata"]
    if resource is None:
        if name == "create":
            await _create(client, body)
        return
    path = resource.path(metadata.get("namespace", ""), metadata["name"])
    match name:
        case "create":
            await _create(client, body)
        case "again":
            await client.request("PATCH", path, reconcile_request())
        case "networks":
            clusters = "/apis/extensions.gardener.cloud/v1alpha1/clusters"
            await client.request("PATCH", f"{clusters}/{_SHOOT}", _NETWORKS)
            await client.request("PATCH", path, reconcile_request())
        case "address":
            await client.request("PATCH", f"{path}/status", _ADDRESS)
        case "delete":
            await client.request("DELETE", path, accepted=(200, 202, 404))


async def _create(client: Client, body: dict[str, Any]) -> None:
    group, _, _ = body["apiVersion"].rpartition("/")
    prefix = f"/apis/{body['apiVersion']}" if group else f"/api/{body['apiVersion']}"
    namespace = body["metadata"].get("namespace")
    within = f"/namespaces/{namespace}" if namespace else ""
    await client.request("POST", f"{prefix}{within}/{_plural(body)}", body, accepted=(201, 409))


def _plural(body: dict[str, Any]) -> str:
    resource = _resource(body)
    kind = str(body["kind"]).lower()
    return resource.plural if resource else f"{kind}s"


def _resource(body: dict[str, Any]) -> Resource | None:
    """The kind of an object, if windowbox serves it."""
    served = (row.resource for row in POOLS.values())
    return next((one for one in served if one.kind == body["kind"] and one.group in body["apiVersion"]), None)


def _objects(example: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all((_EXAMPLES / f"{example}.yaml").read_text()) if one]


async def now(here: World) -> datetime:
    """The time of the bus."""
    return datetime.fromtimestamp(await here.bus.now(), UTC)


async def runs(bus: Bus, since: datetime) -> list[RunRecord]:
    """The runs of all pools since then."""
    found = consumers.snapshot(bus, streams.JOURNAL, [subjects.run("*", ">")], since=since)
    return [RunRecord.model_validate_json(stored.data) async for stored in found]


async def _causes(bus: Bus) -> dict[str, str]:
    """By trace: the operation and the kind of each change on the bus."""
    causes = {}
    async for stored in consumers.snapshot(bus, streams.OBJECTS, [subjects.SEEN_ALL], history=True):
        if OPERATION in stored.headers:
            change, kind = Announcement(stored), subjects.seen_of_kind(stored.subject)
            causes[tracing.trace_id(change.trace)] = f"{RESOURCES[kind].kind} {change.operation}"
    return causes


async def _manage_resources(client: Client) -> None:
    """Report each ManagedResource as healthy, as Gardener's resource manager does."""
    async for _, type_, found in client.changes("0", MANAGED_RESOURCES, ""):
        if type_ == "DELETED" or found.status.get("observedGeneration") == found.generation:
            continue
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        times = {"lastTransitionTime": now, "lastUpdateTime": now, "reason": "Simulated", "message": "well"}
        conditions = [{"type": type_, "status": "True", **times} for type_ in _HEALTHY]
        conditions.append({"type": "ResourcesProgressing", "status": "False", **times})
        status = {"status": {"observedGeneration": found.generation, "conditions": conditions}}
        path = MANAGED_RESOURCES.path(found.namespace, found.name)
        await client.request("PATCH", f"{path}/status", status, accepted=(200, 404))
