"""What a run of a Service does when a call fails, and the rights that load balancers take."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import pytest

from bus.messages import Reason, Wish
from bus.outcomes import Outcome
from tests.support.cases import cases
from tests.support.lbobjects import service
from tests.support.rules import rule
from windowbox.errors import Forbidden, Missing, Refused, Unreachable, WindowboxError
from windowbox.models.cloudfacts import CloudFacts
from windowbox.models.objects import Object
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef
from windowbox.rights.rbac import RULES
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.core.cloudfaults import CloudFaults
from workers.core.reconcile import Request, reconcile
from workers.core.reports import Reports
from workers.loadbalancer.edgestate import EdgeState
from workers.loadbalancer.ipam.results import REBUILDING
from workers.loadbalancer.service.servicedoors import ServiceDoors
from workers.loadbalancer.service.servicereconciler import ServiceReconciler
from workers.loadbalancer.spec import demands, listeners
from workers.loadbalancer.spec.selection import FINALIZER

T = TypeVar("T")

WEB = ObjectRef(RUNTIME, SERVICES.id, "default", "web")
NOWHERE = cast(Any, None)
"""Nothing is asked but through the doors."""
LEFT = service(type="ClusterIP", metadata={"finalizers": [FINALIZER, "other"], "resourceVersion": "7"})
"""No load balancer any more, and not cleaned up yet."""


@dataclass
class World:
    """Answers at the doors of a run, with what went wrong where something does."""

    found: Object
    broken: dict[str, WindowboxError] = field(default_factory=dict)
    version: str = ""
    """Since when it has addresses; nothing if it never had any."""
    said: list[tuple[str, Any]] = field(default_factory=list)

    async def read(self, ref: ObjectRef) -> Object | None:
        return self.found

    async def call(
        self, door: str, request: Any, act: Callable[..., Awaitable[Any]], *args: Any, effect: bool = False
    ) -> Any:
        if door in self.broken:
            raise self.broken[door]
        if effect:
            self.said.append((door, request))
        match door:
            case "reported":
                return {"intent": None, "sequence": 0}
            case "clock":
                return "2026-01-01T00:00:00+00:00"
            case "addresses" if "version" in request:
                return self.version
            case "addresses" if "take" in request:
                return {"addresses": {}, "reason": REBUILDING, "note": "being restored"}
            case _:
                return None

    def wrote(self, ref: ObjectRef, version: str) -> None: ...

    async def time(self) -> datetime:
        return datetime.now(UTC)

    async def secret(self, ref: ObjectRef, parse: Callable[[Mapping[str, bytes]], T]) -> T | None:
        return None

    @property
    def events(self) -> list[str]:
        """The texts for people."""
        reports = [request for door, request in self.said if door == "report"]
        return [event["note"] for report in reports for event in report.get("events", ())]


@pytest.fixture
def services() -> ServiceReconciler:
    doors = ServiceDoors(NOWHERE, NOWHERE, NOWHERE, NOWHERE, NOWHERE)
    return ServiceReconciler(doors, LoadBalancerSettings(), CloudFaults(NOWHERE))


async def run(services: ServiceReconciler, wish: Wish, world: World) -> Outcome:
    return await reconcile(services, Request(WEB, wish, world, Reports(NOWHERE, WEB, world)))


FAILED = "Error syncing load balancer: failed to delete load balancer: patch of default/web: forbidden"
REFUSED = {"patch": Refused("patch of default/web: forbidden")}
AWAY = {"edge": Unreachable("the bus is away", retry_after=7)}
STARTING = {"patch": Forbidden("patch of default/web: forbidden")}
"""A starting server has not read its rights yet, while the runs before found it away."""


@cases(
    "broken wish after events",
    ("LB-2-failed+LB-3-syncfailed", REFUSED, Wish(reason=Reason.EVENT), 5, [FAILED]),
    ("LB-6-retry+LB-16-backoff", REFUSED, Wish(reason=Reason.RETRY, attempt=2), 20, None),
    ("LB-6-delay-an-error-may-name-its-own", AWAY, Wish(reason=Reason.EVENT, attempt=4), 7, []),
    ("a-starting-server-is-asked-again-soon", STARTING, Wish(reason=Reason.RETRY, attempt=9), 20, None),
)
async def test_a_failure_is_reported_and_retried(
    services: ServiceReconciler, broken: Any, wish: Wish, after: float, events: list[str] | None
) -> None:
    world = World(LEFT, broken)
    outcome = await run(services, wish, world)
    assert outcome.requeue is not None
    assert (outcome.requeue.after, outcome.requeue.wish.attempt) == (after, wish.attempt + 1)
    assert events is None or world.events == events


@pytest.mark.parametrize(("reason", "reported"), [(Reason.EVENT, False), (Reason.RETRY, True)])
async def test_a_restore_of_allocations_is_reported_only_if_it_lasts(
    services: ServiceReconciler, reason: Reason, reported: bool
) -> None:
    world = World(service(metadata={"finalizers": [FINALIZER], "resourceVersion": "7"}))
    outcome = await run(services, Wish(reason=reason), world)
    assert outcome.requeue is not None
    assert any("being restored" in event for event in world.events) is reported
    assert bool(world.events) is reported


@rule("LB-6-reset")
async def test_a_success_resets_the_attempts(services: ServiceReconciler) -> None:
    deleted = service(metadata={"finalizers": [FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z"})
    outcome = await run(services, Wish(reason=Reason.RETRY, attempt=3), World(deleted))
    assert outcome.requeue is None


@cases(
    "version events",
    ("LB-2-nothing", "", ["Deleted load balancer"]),
    ("LB-3-deleting", "5", ["Deleting load balancer", "Deleted load balancer"]),
)
async def test_deleting_is_reported_only_if_addresses_were_held(
    services: ServiceReconciler, version: str, events: list[str]
) -> None:
    world = World(LEFT, version=version)
    outcome = await run(services, Wish(reason=Reason.EVENT), world)
    assert outcome.note == "released"
    assert world.said[0] == ("patch", {"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}})
    assert world.events == events


@rule("LB-2-lost")
async def test_a_service_already_gone_is_no_error(services: ServiceReconciler) -> None:
    world = World(LEFT, {"patch": Missing("default/web is gone")})
    outcome = await run(services, Wish(reason=Reason.EVENT), world)
    assert (outcome.requeue, world.events) == (None, [])


async def test_services_of_other_clusters_are_left_to_others() -> None:
    doors = ServiceDoors(NOWHERE, NOWHERE, NOWHERE, NOWHERE, NOWHERE)
    settings = LoadBalancerSettings(clusters=("shoot--*",))
    deleted = service(metadata={"finalizers": [FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z"})
    for found in (service(), LEFT, deleted):
        world = World(found)
        outcome = await run(
            ServiceReconciler(doors, settings, CloudFaults(NOWHERE)), Wish(reason=Reason.EVENT), world
        )
        assert outcome.note == "of a cluster that others serve"
        assert world.said == [("addresses", {"release": str(WEB)})]


@dataclass
class OnAws(World):
    """A Service in a cloud that shows host names, which the edge serves."""

    zone: str = ""
    """The zone of the name; empty if we have none."""

    async def call(
        self, door: str, request: Any, act: Callable[..., Awaitable[Any]], *args: Any, effect: bool = False
    ) -> Any:
        match door:
            case "left":
                return CLOUD.model_dump(mode="json")
            case "addresses" if "take" in request:
                return {"addresses": {"IPv4": "10.0.0.17"}}
            case "edge":
                asked = demands.demand_in(ELSEWHERE.cluster, self.found, LoadBalancerSettings(), CLOUD)
                digest = listeners.digest(asked.uid, listeners.listeners(asked, {"IPv4": "10.0.0.17"}))
                state = EdgeState(uid=asked.uid, digest=digest, since="", backends=("node-1",))
                return state.model_dump(mode="json")
            case "dns":
                self.said.append((door, request))
                return self.zone
            case _:
                return await super().call(door, request, act, *args, effect=effect)


CLOUD = CloudFacts(type="aws", region="eu-central-1")
ELSEWHERE = WEB._replace(cluster="shoot")


@pytest.mark.parametrize("zone", ["amazonaws.com", ""])
async def test_a_host_name_is_shown_only_if_it_is_published(services: ServiceReconciler, zone: str) -> None:
    world = OnAws(service(metadata={"finalizers": [FINALIZER], "resourceVersion": "7"}), zone=zone)
    reports = Reports(NOWHERE, ELSEWHERE, world)
    await reconcile(services, Request(ELSEWHERE, Wish(reason=Reason.EVENT), world, reports))
    [(_, published), (_, report)] = world.said
    name = published["name"]
    assert published == {"do": "publish", "name": name, "values": ["10.0.0.17"]}
    assert name.endswith("-167772177.eu-central-1.elb.amazonaws.com")
    [shown] = report["patch"]["loadBalancer"]["ingress"]
    assert shown.get("hostname") == (name if zone else None)
    assert shown.get("ip") == (None if zone else "10.0.0.17")
    events = {event["reason"]: event["note"] for event in report["events"]}
    assert ("HostNameNotPublished" in events) == (not zone)
    assert zone or "add the zone amazonaws.com" in events["HostNameNotPublished"]


READING = {"get", "list", "watch"}


def verbs(role: str, resource: str) -> set[str]:
    rules = (one for one in RULES[role] if resource in one["resources"])
    return {verb for one in rules for verb in one["verbs"]}


@rule("LB-2-rights", "LB-2-subresource")
@pytest.mark.parametrize("role", ["watcher", "worker", "patcher"])
def test_of_services_only_the_status_may_be_written(role: str) -> None:
    assert verbs(role, "services") <= READING
    assert verbs(role, "services/status") <= {"patch"}


@rule("LB-2-rights")
@pytest.mark.parametrize("resource", ["nodes", "pods", "endpointslices"])
@pytest.mark.parametrize("role", ["watcher", "worker", "patcher"])
def test_nodes_pods_and_slices_are_only_read(role: str, resource: str) -> None:
    assert verbs(role, resource) <= READING


@rule("LB-2-rights")
def test_only_the_patcher_writes_events() -> None:
    writing = {role for role in RULES if verbs(role, "events")}
    assert writing == {"patcher"}
