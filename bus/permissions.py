"""Who may say what on the bus: least rights for each role, as nats-server's configuration takes them.

They keep each role to its part. Whoever asks JetStream for a message chooses the subject of the answer, and
the server does not look whether it may be used: who reads does (`answers.is_forged`).

`python -m bus.permissions` prints them for a deployment with one server, and with the argument `clustered`
for one with three.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Literal, NotRequired, TypedDict

from bus import queries, streams, subjects
from bus.intents import PATCH
from bus.leases import liveness, presence
from bus.leases.elections import ELECTED
from windowbox.kinds import POOLS
from windowbox.models.refs import CLUSTERS, RUNTIME

Role = Literal["watcher", "worker", "edge", "patcher", "admit", "operator", "runner"]


class Rules(TypedDict):
    allow: list[str]
    deny: NotRequired[list[str]]


class Permissions(TypedDict):
    publish: Rules
    subscribe: Rules


def _api(*requests: str) -> list[str]:
    return [f"$JS.API.{request}" for request in requests]


def _reading(*names: str) -> list[str]:
    """To go through what streams hold, by consumers that vanish with their reader."""
    return [
        subject
        for name in names
        for subject in (
            *_api(f"CONSUMER.CREATE.{name}.*", f"CONSUMER.DELETE.{name}.*"),
            *_asking_leader(name),
            f"$JS.FC.{name}.>",
        )
    ]


def _taking(stream: str, consumer: str) -> list[str]:
    """To take messages by a durable consumer, and to settle them."""
    return [
        *_api(f"CONSUMER.CREATE.{stream}.{consumer}", f"CONSUMER.MSG.NEXT.{stream}.{consumer}"),
        f"$JS.ACK.{stream}.{consumer}.>",
    ]


def _last(stream: str, subject: str) -> list[str]:
    """To get the last message of a subject."""
    return [*_api(f"DIRECT.GET.{stream}.{subject}"), *_asking_leader(stream)]


_LEADER = "$JS.API.STREAM.MSG.GET."


def _asking_leader(stream: str) -> list[str]:
    """To get a message from the leader of a stream. Only where there are several servers.

    Which message is asked for, the subject does not tell: whoever may ask for one may ask for all.
    """
    return [f"{_LEADER}{stream}"]


def _leases(*names: str) -> list[str]:
    bucket = f"KV_{streams.LEASES}"
    return [
        *_reading(bucket),
        *_last(bucket, ">"),
        *(subjects.entry(streams.LEASES, name) for name in names),
    ]


def _living(role: str) -> str:
    """To count as alive, in the leases that processes of this role hold."""
    return liveness.subject(f"{role}.>")


def _keeping(bucket: str) -> list[str]:
    """To write a bucket, and to know what stands there."""
    stream = f"KV_{bucket}"
    return [
        *_reading(stream),
        *_last(stream, ">"),
        *_api(f"STREAM.INFO.{stream}"),
        subjects.entry(bucket, ">"),
    ]


def _wishing(pool: str) -> list[str]:
    """To have an object of a pool looked at."""
    return [
        subjects.wish(pool, ">"),
        subjects.item(pool, ">"),
        *_last(streams.TRIGGERS, subjects.wish(pool, ">")),
    ]


def _pool(pool: str) -> list[str]:
    """To do the work of a pool: its queue, what waits for its time, its journal."""
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


# Messages are deleted by their sequence, which no subject tells: whoever may delete one may delete all.
_FULFILLING = [
    *_reading(streams.TRIGGERS, streams.LATER),
    *_api(f"DIRECT.GET.{streams.TRIGGERS}"),
    *_api(*(f"STREAM.MSG.DELETE.{name}" for name in (streams.TRIGGERS, streams.LATER, streams.INTENTS))),
    *_asking_leader(streams.WORK),
    *_api(f"STREAM.INFO.{streams.LATER}"),  # tells the server's time
    *_api(f"STREAM.INFO.{streams.WORK}"),  # tells a sweep which items there are
    *_last(streams.INTENTS, subjects.intent(">")),
]

_EVERYBODY = [*_reading(f"KV_{streams.CLUSTERS}"), f"{subjects.inbox('operator')}.>"]

_STREAMS = [stream["name"] for stream in streams.streams(1)]

_WATCHER = [
    *_api(*(f"STREAM.{verb}.{name}" for name in _STREAMS for verb in ("INFO", "CREATE", "UPDATE"))),
    *_api(f"STREAM.PURGE.{streams.OBJECTS}"),
    "object.>",
    *_reading(streams.OBJECTS),
    # After an interruption watchers look whether the stream still holds what they know.
    *_last(streams.OBJECTS, "object.>"),
    *_api(f"DIRECT.GET.{streams.OBJECTS}"),
    *_leases("watch.>"),
    _living("watch"),
]

_WORKER = [
    *(subject for pool in POOLS for subject in _pool(pool)),
    *_wishing(PATCH),
    *_api(f"CONSUMER.INFO.{streams.WORK}.pool-{PATCH}"),  # the heartbeat tells whether they are there
    *_FULFILLING,
    subjects.intent(">"),
    # Workers ask each other, and who is there.
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
    *_leases("addresses", "edge", "garden", "join", "providers", "twins.dnsrecord"),
    _living("work"),
    # Clusters join and leave as their Namespaces say, and are put back when the bus has forgotten them.
    *_last(f"KV_{streams.CLUSTERS}", ">"),
    subjects.entry(streams.CLUSTERS, ">"),
]

# Reads what Services, nodes and Pods are and which addresses they have, and says how load balancers stand.
_EDGE = [
    *_reading(streams.OBJECTS, f"KV_{streams.ADDRESSES}"),
    *_api(f"STREAM.INFO.KV_{streams.ADDRESSES}"),
    *_keeping(streams.EDGES),
    *_wishing("loadbalancer"),
    *_leases("edge"),
    _living("edge"),
]

_PATCHER = [*_pool(PATCH), _living("patch"), *_FULFILLING]

# Reads the Clusters of Shoots, and notes what webhooks decide.
_ADMIT = [
    subjects.review(">"),
    *_last(streams.OBJECTS, subjects.seen_kind(RUNTIME, CLUSTERS.id)),
    *_leases("admit", "admit-runtime", "admission"),
    _living("admit"),
    *_wishing("controlplane"),
]

_OPERATOR = [
    "$JS.API.>",
    "$JS.FC.>",
    presence.SUBJECT,
    queries.EDGE,
    "object.>",
    *_wishing("*"),
    subjects.entry(streams.CLUSTERS, ">"),
]


def _process(
    role: Role, publish: Iterable[str], deny: Sequence[str] = (), answers: Sequence[str] = ()
) -> Permissions:
    allowed: Rules = {"allow": _each_once([*publish, *_EVERYBODY])}
    if deny:
        allowed["deny"] = list(deny)
    return {
        "publish": allowed,
        "subscribe": {"allow": [f"{subjects.inbox(role)}.>", presence.SUBJECT, *answers]},
    }


def _each_once(all_of: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(all_of))


# Who reads OBJECTS names the consumer, and must not name that of a pool.
_ROUTES = _api(*(f"CONSUMER.*.{streams.OBJECTS}.route-{pool}" for pool in POOLS))

PERMISSIONS: dict[Role, Permissions] = {
    "watcher": _process("watcher", _WATCHER, _ROUTES),
    "worker": _process("worker", _WORKER, answers=[queries.EDGE, queries.TWINS, ELECTED]),
    "edge": _process("edge", _EDGE, _ROUTES, answers=[queries.EDGE]),
    "patcher": _process("patcher", _PATCHER, answers=[ELECTED]),
    "admit": _process("admit", _ADMIT),
    # A person reads everything and mends the streams, but reports no status and writes no journal. Other
    # programs that a person uses, such as `nats`, have inboxes of their own.
    "operator": {"publish": {"allow": _each_once(_OPERATOR)}, "subscribe": {"allow": [">"]}},
}

RUNNER = _process(
    "runner",
    [*_WATCHER, *_WORKER, *_PATCHER, _living("run"), f"{subjects.inbox('runner')}.>"],
    answers=[queries.EDGE, queries.TWINS, ELECTED],
)
"""Of `windowbox run`, which watches, works and patches. Only sandboxes have such a user."""


def users(passwords: dict[str, str], *, clustered: bool = False) -> list[dict[str, object]]:
    """The roles that have a password, as users in nats-server's configuration."""
    known: dict[Role, Permissions] = {**PERMISSIONS, "runner": RUNNER}
    return [
        {"user": role, "password": passwords[role], "permissions": _for_servers(permissions, clustered)}
        for role, permissions in known.items()
        if role in passwords
    ]


def _for_servers(permissions: Permissions, clustered: bool) -> Permissions:
    """Where there is one server, each message is asked for by its subject, if the role needs no more."""
    if clustered:
        return permissions
    publish = permissions["publish"]
    allowed = [subject for subject in publish["allow"] if not subject.startswith(_LEADER)]
    return {**permissions, "publish": {**publish, "allow": allowed}}


def configuration(*, clustered: bool = False) -> str:
    """The users as a part of nats-server's configuration, each with its password from the environment."""
    variables: dict[str, str] = {role: f"$NATS_{role.upper()}_PASSWORD" for role in PERMISSIONS}
    text = json.dumps({"users": users(variables, clustered=clustered)}, indent=2)
    for variable in variables.values():
        # Only without quotes it is a variable.
        text = text.replace(f'"{variable}"', variable)
    return f"# Made by `make generate` from bus/permissions.py.\nauthorization: {text}\n"


if __name__ == "__main__":
    print(configuration(clustered="clustered" in sys.argv[1:]), end="")
