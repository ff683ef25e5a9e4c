"""Permissions on the bus: least privilege for each role, in the terms of nats-server's configuration.

A client that requests a message from JetStream chooses the subject of the response, and the server does not
check whether the client may publish there. Readers do (`answers.is_forged`).

`python -m bus.permissions` prints the permissions for a single server, with the argument `clustered` for
three servers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Literal, NotRequired, TypedDict

from bus import queries, streams, subjects
from bus.intents import PATCH, REPORTS
from bus.leases import liveness, presence
from bus.leases.elections import ELECTED
from windowbox.kinds import POOLS
from windowbox.models.refs import CLUSTERS, RUNTIME

Role = Literal["watcher", "worker", "edge", "patcher", "admit", "ui", "operator", "runner"]


class Rules(TypedDict):
    allow: list[str]
    deny: NotRequired[list[str]]


class Permissions(TypedDict):
    publish: Rules
    subscribe: Rules


_LEADER = "$JS.API.STREAM.MSG.GET."
"""Read a message from the leader of a stream, which is only needed in a cluster of servers.

The subject does not name the message: this permission is for all messages of the stream.
"""


def _api(*requests: str) -> list[str]:
    return [f"$JS.API.{request}" for request in requests]


def _reading(*names: str) -> list[str]:
    """Read streams by ephemeral consumers."""
    return [
        subject
        for name in names
        for subject in (
            *_api(f"CONSUMER.CREATE.{name}.*", f"CONSUMER.DELETE.{name}.*"),
            f"{_LEADER}{name}",
            f"$JS.FC.{name}.>",
        )
    ]


def _taking(stream: str, consumer: str) -> list[str]:
    """Pull messages of a durable consumer, and acknowledge them."""
    return [
        *_api(f"CONSUMER.CREATE.{stream}.{consumer}", f"CONSUMER.MSG.NEXT.{stream}.{consumer}"),
        f"$JS.ACK.{stream}.{consumer}.>",
    ]


def _last(stream: str, subject: str) -> list[str]:
    """Read the last message of a subject."""
    return [*_api(f"DIRECT.GET.{stream}.{subject}"), f"{_LEADER}{stream}"]


def _leases(*names: str) -> list[str]:
    bucket = f"KV_{streams.LEASES}"
    held = (subjects.entry(streams.LEASES, name) for name in names)
    return [*_reading(bucket), *_last(bucket, ">"), *held]


def _living(role: str) -> str:
    """Renew the lives of processes of this role, which hold their leases."""
    return liveness.subject(f"{role}.>")


def _keeping(bucket: str) -> list[str]:
    """Read and write a bucket."""
    stream = f"KV_{bucket}"
    entries = subjects.entry(bucket, ">")
    return [*_reading(stream), *_last(stream, ">"), *_api(f"STREAM.INFO.{stream}"), entries]


def _wishing(pool: str) -> list[str]:
    """Request a reconcile of objects of a pool."""
    wishes, items = subjects.wish(pool, ">"), subjects.item(pool, ">")
    return [wishes, items, *_last(streams.TRIGGERS, wishes)]


def _pool(pool: str) -> list[str]:
    """Process the items of a pool: its queue, its scheduled requeues, its journal."""
    return [
        *_wishing(pool),
        *(spelled(pool, ">") for spelled in (subjects.later, subjects.run, subjects.start)),
        *_last(streams.LATER, subjects.later(pool, ">")),
        *_last(streams.JOURNAL, subjects.start(pool, ">")),
        *_last(streams.JOURNAL, subjects.run(pool, ">")),
        *_taking(streams.WORK, f"pool-{pool}"),
        *_api(f"CONSUMER.INFO.{streams.WORK}.pool-{pool}"),
        *_taking(streams.LATER, f"due-{pool}"),
        *_leases(f"sweep.{pool}", f"drift.{pool}"),
    ]


# A message is deleted by its sequence, which is not in the subject: the permission is for all messages.
_FULFILLING = [
    *_reading(streams.TRIGGERS, streams.LATER),
    *_api(f"DIRECT.GET.{streams.TRIGGERS}"),
    *_api(*(f"STREAM.MSG.DELETE.{name}" for name in (streams.TRIGGERS, streams.LATER, streams.INTENTS))),
    f"{_LEADER}{streams.WORK}",
    *_api(f"STREAM.INFO.{streams.LATER}"),  # has the server's time
    *_api(f"STREAM.INFO.{streams.WORK}"),  # has the items, for a sweep
    *_last(streams.INTENTS, subjects.intent(">")),
]

_EVERYBODY = [
    *_reading(f"KV_{streams.CLUSTERS}"),
    *(f"{subjects.inbox(asking)}.>" for asking in ("operator", "ui")),  # which ask who is there
]

_STREAMS = [stream["name"] for stream in streams.streams(1)]

_WATCHER = [
    *_api(*(f"STREAM.{verb}.{name}" for name in _STREAMS for verb in ("INFO", "CREATE", "UPDATE"))),
    *_api(f"STREAM.PURGE.{streams.OBJECTS}", f"STREAM.PURGE.{streams.INTENTS}"),  # of clusters that have left
    "object.>",
    *_reading(streams.OBJECTS),
    # After an interruption watchers check whether the stream still holds the messages that they know.
    *_last(streams.OBJECTS, "object.>"),
    *_api(f"DIRECT.GET.{streams.OBJECTS}"),
    *_leases("watch.>"),
    _living("watch"),
]

_WORKER = [
    *(subject for pool in POOLS for subject in _pool(pool)),
    *_wishing(PATCH),
    *_api(f"CONSUMER.INFO.{streams.WORK}.pool-{PATCH}"),  # the heartbeat reports whether patchers are there
    *_FULFILLING,
    subjects.intent(">"),
    *_api(f"STREAM.INFO.{streams.INTENTS}"),  # has the reports, for a sweep
    # Workers query each other. Those of 0.2.0 also ask which processes are there.
    queries.TWINS,
    presence.SUBJECT,
    f"{subjects.inbox('worker')}.>",
    "settings.>",
    *_reading(streams.OBJECTS),
    *(subject for pool in POOLS for subject in _taking(streams.OBJECTS, f"route-{pool}")),
    *_last(streams.OBJECTS, "object.>"),
    *_api(f"DIRECT.GET.{streams.OBJECTS}", f"STREAM.INFO.{streams.OBJECTS}"),
    *_keeping(streams.ADDRESSES),
    *_keeping(streams.EDGES),
    *_keeping(streams.CLOUDS),
    *_leases("addresses", "edge", "edge.>", "garden", "join", "providers", "twins.dnsrecord"),
    _living("work"),
    # Namespaces let clusters join and leave. Members that the bus has lost are registered again.
    *_last(f"KV_{streams.CLUSTERS}", ">"),
    subjects.entry(streams.CLUSTERS, ">"),
]

# Reads Services, nodes, Pods and their addresses, and reports the state of load balancers.
_EDGE = [
    *_reading(streams.OBJECTS, f"KV_{streams.ADDRESSES}"),
    *_api(f"STREAM.INFO.KV_{streams.ADDRESSES}"),
    *_keeping(streams.EDGES),
    *_wishing("loadbalancer"),
    *_leases("edge", "edge.>"),
    _living("edge"),
]

_PATCHER = [*_pool(PATCH), *_taking(streams.INTENTS, REPORTS), _living("patch"), *_FULFILLING]

# Reads the Clusters of Shoots, and records the decisions of webhooks.
_ADMIT = [
    subjects.review(">"),
    *_last(streams.OBJECTS, subjects.seen_kind(RUNTIME, CLUSTERS.id)),
    *_leases("admit", "admit-runtime", "admission"),
    _living("admit"),
    *_wishing("controlplane"),
]

# Reads everything that the page shows, and writes nothing.
_UI = [
    *_reading(streams.OBJECTS, streams.TRIGGERS, streams.LATER, streams.JOURNAL, streams.REVIEWS),
    *_reading(f"KV_{streams.LEASES}", f"KV_{streams.EDGES}"),
    # The edge says what Envoy counts.
    queries.EDGE,
    queries.edge(">"),
    *_last(streams.JOURNAL, subjects.run("loadbalancer", ">")),
    *_last(streams.TRIGGERS, subjects.wish("*", ">")),
    *_last(streams.WORK, subjects.item("*", ">")),
    *_last(streams.LATER, subjects.later("*", ">")),
    *_last(streams.LATER, subjects.due("*", ">")),
    *_last(streams.INTENTS, subjects.intent(">")),
    *_api(f"DIRECT.GET.{streams.TRIGGERS}"),  # the oldest wish of a pool
    *_api(*(f"STREAM.INFO.{name}" for name in _STREAMS)),
    *_api(*(f"CONSUMER.INFO.{streams.WORK}.pool-{pool}" for pool in (*POOLS, PATCH))),
    *_api(*(f"CONSUMER.INFO.{streams.OBJECTS}.route-{pool}" for pool in POOLS)),
    *_api(f"CONSUMER.INFO.{streams.INTENTS}.{REPORTS}"),
    presence.SUBJECT,
]

_OPERATOR = [
    "$JS.API.>",
    "$JS.FC.>",
    presence.SUBJECT,
    queries.EDGE,
    queries.edge(">"),
    "object.>",
    *_wishing("*"),
    subjects.entry(streams.CLUSTERS, ">"),
    subjects.entry(streams.CLOUDS, ">"),
]


def _process(
    role: Role, publish: Iterable[str], deny: Sequence[str] = (), answers: Sequence[str] = ()
) -> Permissions:
    allowed: Rules = {"allow": list(dict.fromkeys([*publish, *_EVERYBODY]))}
    if deny:
        allowed["deny"] = list(deny)
    heard = [f"{subjects.inbox(role)}.>", presence.SUBJECT, *answers]
    return {"publish": allowed, "subscribe": {"allow": heard}}


# A reader of OBJECTS chooses its consumer's name, which must not be that of a pool's consumer.
_ROUTES = _api(*(f"CONSUMER.*.{streams.OBJECTS}.route-{pool}" for pool in POOLS))

# The page reads LATER in the same way, but it shows these consumers.
_CHANGING = [
    subject
    for act in ("CREATE", "DELETE")
    for subject in _api(
        *(f"CONSUMER.{act}.{streams.OBJECTS}.route-{pool}" for pool in POOLS),
        *(f"CONSUMER.{act}.{streams.LATER}.due-{pool}" for pool in (*POOLS, PATCH)),
    )
]

_STORY = [
    "object.>",
    subjects.review(">"),
    subjects.intent(">"),
    *(of("*", ">") for of in (subjects.wish, subjects.item, subjects.run, subjects.start, subjects.later)),
    subjects.entry(streams.EDGES, ">"),
]
"""Where steps of an object's story, and the states of load balancers, are published."""

_ON_EDGES = [queries.EDGE, queries.edge(">")]

PERMISSIONS: dict[Role, Permissions] = {
    "watcher": _process("watcher", _WATCHER, _ROUTES),
    "worker": _process("worker", _WORKER, answers=[*_ON_EDGES, queries.TWINS, ELECTED]),
    "edge": _process("edge", _EDGE, _ROUTES, answers=_ON_EDGES),
    "patcher": _process("patcher", _PATCHER, answers=[ELECTED]),
    "admit": _process("admit", _ADMIT),
    "ui": _process("ui", _UI, _CHANGING, answers=_STORY),
    # An operator reads everything and repairs streams, but reports no status and writes no journal. An
    # operator's other programs, such as `nats`, have inboxes of their own.
    "operator": {"publish": {"allow": list(dict.fromkeys(_OPERATOR))}, "subscribe": {"allow": [">"]}},
}

RUNNER = _process(
    "runner",
    [*_WATCHER, *_WORKER, *_PATCHER, _living("run"), f"{subjects.inbox('runner')}.>"],
    answers=[*_ON_EDGES, queries.TWINS, ELECTED],
)
"""For `windowbox run`, which watches, works and patches: in sandboxes, and with the chart's `run.enabled`."""


def users(passwords: dict[str, str], *, clustered: bool = False) -> list[dict[str, object]]:
    """The roles that have a password, as users in nats-server's configuration."""
    known: dict[Role, Permissions] = {**PERMISSIONS, "runner": RUNNER}
    found: list[dict[str, object]] = []
    for role, permissions in known.items():
        publish = permissions["publish"]
        if not clustered:
            # A single server finds each message by its subject: no role needs to read by sequence.
            allowed = [subject for subject in publish["allow"] if not subject.startswith(_LEADER)]
            permissions = {**permissions, "publish": {**publish, "allow": allowed}}
        if role in passwords:
            found.append({"user": role, "password": passwords[role], "permissions": permissions})
    return found


def configuration(*, clustered: bool = False, runner: bool = False) -> str:
    """The users as a part of nats-server's configuration, each with its password from the environment."""
    roles = [*PERMISSIONS, *(["runner"] if runner else [])]
    variables = {role: f"$NATS_{role.upper()}_PASSWORD" for role in roles}
    text = json.dumps({"users": users(variables, clustered=clustered)}, indent=2)
    for variable in variables.values():
        # nats-server replaces variables only without quotes.
        text = text.replace(f'"{variable}"', variable)
    return f"# Made by `make generate` from bus/permissions.py.\nauthorization: {text}\n"


if __name__ == "__main__":
    asked = sys.argv[1:]
    print(configuration(clustered="clustered" in asked, runner="runner" in asked), end="")
