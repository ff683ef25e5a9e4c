"""A Shoot as a tree: what it is made of, how each part stands, and which part the others wait for."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bus import streams, subjects
from bus.messages import Announcement
from bus.transport import consumers
from ui.health import BUSY, WELL, Health, State, health
from ui.mirror import LastRun, Later, Mirror, Place, with_run
from ui.view import Params, Source, View
from windowbox.errors import Missing
from windowbox.kinds import RESOURCES
from windowbox.models.objects import Object, mapping, mappings
from windowbox.models.refs import (
    BASTIONS,
    CLUSTERS,
    CONTROL_PLANES,
    DNSRECORDS,
    EXPOSURES,
    EXTENSIONS,
    INFRASTRUCTURES,
    INGRESSES,
    MACHINE_DEPLOYMENTS,
    MACHINE_SETS,
    MACHINES,
    MANAGED_RESOURCES,
    NODES,
    OPERATING_SYSTEM_CONFIGS,
    PLANE_DEPLOYMENTS,
    PODS,
    RUNTIME,
    SERVICES,
    WORKERS,
    ObjectRef,
)
from workers.machines import names

PARTS = tuple(
    one.id
    for one in (
        INFRASTRUCTURES, DNSRECORDS, CONTROL_PLANES, PLANE_DEPLOYMENTS, OPERATING_SYSTEM_CONFIGS, WORKERS,
        MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, PODS, NODES, EXTENSIONS, MANAGED_RESOURCES, SERVICES,
        INGRESSES, EXPOSURES, BASTIONS,
    )
)  # fmt: skip
"""The kinds of its parts, in the order in which they are shown, which is about the one of their creation."""
_SCALED = (MACHINE_DEPLOYMENTS.id, MACHINE_SETS.id)
_MOST_ILL, _MOST_WELL = 50, 12
"""Children of one kind that are shown."""
_MOST_BLOCKERS = 10
_WORST: Mapping[State, int] = {"failed": 0, "degraded": 1, "leaving": 2, "busy": 3, "well": 4}


@dataclass(frozen=True)
class Node:
    """A part of the Shoot, and its parts."""

    ref: ObjectRef | None
    """None for the Shoot itself, which the bus does not hold."""
    kind: str
    name: str
    health: Health
    facts: str = ""
    """A few words about it."""
    due: float = 0.0
    """When it is tried again."""
    finalizers: tuple[str, ...] = ()
    """What holds it back from going."""
    children: tuple[Node, ...] = ()
    omitted: int = 0
    """Children beyond the first of each kind."""
    awaited: bool = False
    """Whether what is above it waits for it."""

    @property
    def ill(self) -> bool:
        return self.health.state != "well"

    @property
    def blocks(self) -> bool:
        """Whether all above wait for it, and it waits for none of its parts."""
        return self.awaited and not any(child.awaited for child in self.children)

    def all(self) -> Iterator[Node]:
        yield self
        for child in self.children:
            yield from child.all()


@dataclass(frozen=True)
class Tree:
    """The model of the view."""

    namespace: str
    root: Node
    blockers: tuple[Node, ...]
    count: int
    """Parts in all."""
    ill: int


def model(
    namespace: str, objects: Mapping[ObjectRef, Object], ill: Mapping[Place, LastRun],
    later: Mapping[Place, Later], now: float,
) -> Tree:  # fmt: skip
    """`objects` are the parts, and the Cluster."""
    runs = {run.ref: (run, _due(run, later.get(place), now)) for place, run in ill.items()}
    nodes = dict[ObjectRef, Node]()
    for ref, object in objects.items():
        run, due = runs.get(ref, (None, 0.0))
        state = _state(ref, object, run)
        if state and not (ref.kind == MANAGED_RESOURCES.id and state.state == "well"):
            finalizers = tuple(map(str, object.finalizers)) if object.deleting else ()
            nodes[ref] = Node(
                ref, RESOURCES[ref.kind].kind, ref.name, state, _facts(ref, object), due, finalizers
            )
    cluster = objects.get(ObjectRef(RUNTIME, CLUSTERS.id, "", namespace), Object({}))
    root = _marked(_root(namespace, cluster, _nested(nodes, objects)))
    every = list(root.all())[1:]
    blockers = tuple(node for node in every if node.blocks)
    return Tree(
        namespace, root, blockers[:_MOST_BLOCKERS], len(nodes), sum(one.ill for one in nodes.values())
    )


def _due(run: LastRun, later: Later | None, now: float) -> float:
    return later.due if later and later.made >= run.started and later.due > now else 0.0


def _state(ref: ObjectRef, object: Object, run: LastRun | None) -> Health | None:
    """How a part stands; None for what is no part. A run's own words say more than a status."""
    if ref.kind == CLUSTERS.id:
        return None
    found = health(ref, object)
    if found is None:
        return None
    if found.state in ("well", "busy"):
        found = _of_machines(ref, object, found)
    if run:
        return with_run(found, run)
    if found is BUSY:
        return found._replace(why=str(object.last_operation.get("description") or "in progress")[:500])
    return found


def _of_machines(ref: ObjectRef, object: Object, found: Health) -> Health:
    if ref.kind == MACHINES.id:
        phase = str(mapping(object.status.get("currentStatus")).get("phase") or "Pending")
        words = str(object.last_operation.get("description") or f"its phase is {phase}")[:500]
        match phase:
            case "Running" | "Available":
                return WELL
            case "Failed" | "Unknown" | "CrashLoopBackOff":
                return Health("failed", words)
            case _:
                return Health("busy", words)
    if ref.kind in _SCALED:
        wanted, ready = _scale(object)
        return Health("busy", f"{ready} of {wanted} machines are ready") if ready < wanted else found
    return found


def _scale(object: Object) -> tuple[int, int]:
    wanted, ready = object.spec.get("replicas"), object.status.get("readyReplicas")
    return (wanted if type(wanted) is int else 1), (ready if type(ready) is int else 0)


def _facts(ref: ObjectRef, object: Object) -> str:
    if ref.kind in _SCALED:
        wanted, ready = _scale(object)
        return f"{ready} of {wanted} ready"
    if ref.kind == DNSRECORDS.id:
        values = object.spec.get("values")
        targets = ", ".join(map(str, values[:3])) if isinstance(values, list) else ""
        return f"{object.spec.get('name', '')}{' → ' if targets else ''}{targets}"
    if ref.kind == SERVICES.id:
        ingress = mappings(mapping(object.status.get("loadBalancer")).get("ingress"))
        return ", ".join(str(one.get("ip") or one.get("hostname") or "") for one in ingress[:3])
    if ref.kind in (OPERATING_SYSTEM_CONFIGS.id, EXTENSIONS.id):
        return str(object.spec.get("purpose") or object.spec.get("type") or "")
    return ""


def _nested(nodes: Mapping[ObjectRef, Node], objects: Mapping[ObjectRef, Object]) -> list[Node]:
    """The parts of the Shoot, each with its own parts."""
    by_uid = {object.uid: ref for ref, object in objects.items() if ref in nodes and object.uid}
    machines = {names.pod(ref.name): ref for ref in nodes if ref.kind == MACHINES.id}
    firsts = {ref.kind: ref for ref in sorted(nodes, reverse=True)}
    below: dict[ObjectRef | None, list[ObjectRef]] = {}
    for ref in nodes:
        below.setdefault(_parent(ref, objects[ref], by_uid, machines, firsts), []).append(ref)

    def grown(ref: ObjectRef) -> Node:
        children, omitted = _first(_sorted(grown(one) for one in below.get(ref, ())))
        return replace(nodes[ref], children=children, omitted=omitted)

    return _sorted(grown(ref) for ref in below.get(None, ()))


def _first(children: Iterable[Node]) -> tuple[tuple[Node, ...], int]:
    """The first of each kind, and how many are left out."""
    counts, shown, omitted = Counter[tuple[str, bool]](), list[Node](), 0
    for child in children:
        counts[child.kind, child.ill] += 1
        if counts[child.kind, child.ill] <= (_MOST_ILL if child.ill else _MOST_WELL):
            shown.append(child)
        else:
            omitted += 1
    return tuple(shown), omitted


def _parent(
    ref: ObjectRef, object: Object, by_uid: Mapping[str, ObjectRef], machines: Mapping[str, ObjectRef],
    firsts: Mapping[str, ObjectRef],
) -> ObjectRef | None:  # fmt: skip
    """What it is a part of; None: of the Shoot itself. That is of an earlier kind, so none circles."""
    if ref.kind in (PODS.id, NODES.id) and ref.name in machines:
        return machines[ref.name]
    for owner in mappings(object.metadata.get("ownerReferences")):
        found = by_uid.get(str(owner.get("uid")))
        if found and found.cluster == ref.cluster and PARTS.index(found.kind) < PARTS.index(ref.kind):
            return found
    if ref.kind == MACHINE_DEPLOYMENTS.id:
        return firsts.get(WORKERS.id)
    if ref.kind == MANAGED_RESOURCES.id and ref.name.startswith("extension-controlplane-"):
        return firsts.get(CONTROL_PLANES.id)
    return None


def _sorted(nodes: Iterable[Node]) -> list[Node]:
    """By kind; of one kind, those that are not well come first."""
    return sorted(
        nodes,
        key=lambda one: (PARTS.index(one.ref.kind) if one.ref else 0, _WORST[one.health.state], one.name),
    )


def _root(namespace: str, cluster: Object, children: Sequence[Node]) -> Node:
    """The Shoot as its Cluster tells of it; not well while one of its parts is not."""
    shoot = Object(mapping(cluster.spec.get("shoot")))
    last, name = shoot.last_operation, shoot.name or namespace
    words = f"{last.get('type', '')} {last.get('progress', '')} %: {last.get('description', '')}"[:500]
    state: State = {"Processing": "busy", "Pending": "busy", "Error": "failed", "Failed": "failed"}.get(
        str(last.get("state")), "well"
    )  # type: ignore[assignment]
    found = Health(state, words if state != "well" else "")
    worst = min((one.health for one in children), key=lambda one: _WORST[one.state], default=WELL)
    if _WORST[worst.state] < _WORST[state]:
        found = Health(worst.state, found.why)
    shown, omitted = _first(children)
    return Node(
        None,
        "Shoot",
        name,
        found,
        shoot.namespace,
        children=shown,
        omitted=omitted,
        awaited=found.state != "well",
    )


def _marked(node: Node) -> Node:
    """The tree with each part marked that what is above it waits for.

    A part that is not well is waited for if all that is above it is not well, too: a machine that has failed
    blocks nothing if its Worker has finished without it.
    """
    children = tuple(
        _marked(replace(child, awaited=node.awaited and node.ill and child.ill)) for child in node.children
    )
    return replace(node, children=children)


def filters(namespace: str) -> tuple[str, ...]:
    """Where the parts of a Shoot are mirrored."""
    within = (subjects.seen_namespace(RUNTIME, kind, namespace) for kind in PARTS if kind != NODES.id)
    cluster = subjects.seen(ObjectRef(RUNTIME, CLUSTERS.id, "", namespace))
    return *within, cluster, subjects.seen_kind(namespace, NODES.id)


def heard(params: Params) -> tuple[str, ...]:
    return filters(params["namespace"])


async def parts(mirror: Mirror, namespace: str) -> dict[ObjectRef, Object]:
    found = {}
    async for stored in consumers.snapshot(mirror.bus, streams.OBJECTS, list(filters(namespace))):
        seen = Announcement(stored)
        if not seen.gone and not seen.omitted:
            found[subjects.ref(subjects.without("object", stored.subject))] = seen.object()
    return found


async def read(source: Source, params: Params) -> dict[str, Any]:
    mirror, namespace = source.mirror, params["namespace"]
    objects = await parts(mirror, namespace)
    if not objects:
        raise Missing(f"the bus holds no part of a Shoot in namespace {namespace!r:.80}")
    return {"model": model(namespace, objects, mirror.ill, mirror.later, time.time())}


VIEW = View(
    name="shoot",
    title="A Shoot",
    about="What it is made of, and which part the others wait for",
    read=read,
    topics=frozenset({"health"}),
    heard=heard,
    path=("namespace",),
    listed=False,
)
