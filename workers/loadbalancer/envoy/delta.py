"""What one Envoy has, what it should have, and the next responses of its stream: a pure state machine."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum

from windowbox.clients.xds.server import Request, Resource, Response
from workers.loadbalancer.tracked import Changes, Tracked

Resources = Tracked[str, Resource]


class Kind(StrEnum):
    """The kinds of resources."""

    RUNTIME = "envoy.service.runtime.v3.Runtime"
    CLUSTERS = "envoy.config.cluster.v3.Cluster"
    ENDPOINTS = "envoy.config.endpoint.v3.ClusterLoadAssignment"
    LISTENERS = "envoy.config.listener.v3.Listener"


_NONE: Resources = Tracked()
_WHOLE = {Kind.CLUSTERS, Kind.LISTENERS}
"""Envoy subscribes to all resources of these kinds, and to others by name."""
_UNANSWERED = {Kind.CLUSTERS: 64, Kind.ENDPOINTS: 2}
"""Responses that may be on their way at a time; of other kinds, one. Envoy answers none with clusters for as
long as any cluster waits for its endpoints or their first health checks: dead nodes must not delay others.
While it takes one with endpoints, the next one is made and sent."""
_UNKNOWN = "unknown"
"""The version of endpoints that there are none of, once Envoy knows."""
_AT_ONCE = 256
_SIZE = 128 << 10
"""Resources, and bytes, of one response: neither this process nor Envoy is busy for long with one."""


class Delta:
    """The resources of one Envoy. A listener has a cluster and endpoints of the same name.

    Clusters and endpoints come first, then listeners that have both; removed listeners go first, then their
    clusters. Envoy applies the good resources of a response and rejects it as a whole if one is bad: its
    halves are sent again, until the bad one is alone.
    """

    def __init__(self) -> None:
        self.held = False
        """Whether listeners have to wait, because another Envoy still serves them."""
        self.unproven: set[str] = set()
        """Listeners that Envoy has accepted in this process, and to which nobody has connected yet."""
        self.accepted = 0
        """How many resources Envoy has accepted or removed."""
        self._nonces = itertools.count(1)
        self._wanted: dict[Kind, Resources] = {}
        """Kinds that lack are left alone."""
        self._changes: dict[Kind, Changes[str]] = {}
        """Those of the wanted resources."""
        self._has: dict[Kind, dict[str, str]] = {kind: {} for kind in Kind}
        """Versions that Envoy has accepted."""
        self._refused: dict[Kind, dict[str, str]] = {kind: {} for kind in Kind}
        self._pending: dict[Kind, dict[str, None]] = {kind: {} for kind in Kind}
        self._gone: dict[Kind, set[str]] = {kind: set() for kind in Kind}
        self.begin()

    def begin(self) -> None:
        """A stream begins: nothing is known of its subscriptions."""
        self._subscribed: dict[Kind, set[str]] = {}
        self._sent: dict[Kind, list[Response]] = {kind: [] for kind in Kind}
        self._on_way: dict[str, str] = {}
        """Versions of clusters that were sent, and not answered yet."""
        self._halves: dict[Kind, deque[Collection[str]]] = {kind: deque() for kind in Kind}
        self._owed: set[Kind] = set()
        """Kinds without any response yet, for which Envoy waits at its start."""

    def want(self, wanted: Mapping[Kind, Resources]) -> None:
        """Have exactly these resources of these kinds."""
        for kind, after in wanted.items():
            before = self._wanted.get(kind)
            if before is not after:
                self._wanted[kind], self._changes[kind] = after, after.changes()
                self._changes[kind].add(self._has[kind] if before is None else before)
            with self._changes[kind].taken() as changed:
                for name in changed:
                    if before is None or before is after or not _same(before.get(name), after.get(name)):
                        self._compare(kind, name)

    def retry(self) -> bool:
        """Send refused resources again, as others may have released their ports. False if there are none."""
        refused = [(kind, name) for kind in Kind for name in self._refused[kind]]
        for kind, name in refused:
            del self._refused[kind][name]
            self._compare(kind, name)
        return bool(refused)

    def received(self, request: Request) -> str:
        """Take a request of the stream. Returns why Envoy has rejected a response, if it has."""
        kind = Kind(request.kind)
        if kind not in self._subscribed:
            self._subscribed[kind] = set()
            has = self._has[kind] = dict(request.versions or {})
            self._owed |= {kind} if kind in _WHOLE and not has else set()
            for name in [*self._wanted.get(kind, ()), *has] if kind in self._wanted else ():
                self._compare(kind, name)
        self._subscribed[kind].update(request.subscribe)
        self._subscribed[kind].difference_update(request.unsubscribe)
        for name in request.unsubscribe:
            self._has[kind].pop(name, None)
        for name in (*request.subscribe, *request.unsubscribe) if kind in self._wanted else ():
            self._compare(kind, name)
        sent = next((one for one in self._sent[kind] if one.nonce == request.nonce), None)
        if sent is None:
            return ""
        self._sent[kind].remove(sent)
        if kind is Kind.CLUSTERS:
            self._on_way = {n: v for one in self._sent[kind] for n, (v, _) in one.resources.items()}
        if request.error and sent.resources:
            self._rejected(kind, sent, request.error)
        else:
            self._accepted(kind, sent)
        return request.error

    def responses(self) -> Iterator[Response]:
        """The responses that can be sent now."""
        for kind in [kind for kind in self._subscribed if kind in self._wanted]:
            while len(self._sent[kind]) < _UNANSWERED.get(kind, 1) and (response := self._next(kind)):
                self._sent[kind].append(response)
                self._owed.discard(kind)
                if kind is Kind.CLUSTERS:
                    self._on_way |= {name: one.version for name, one in response.resources.items()}
                    self._repeat_endpoints(response.resources)
                yield response

    @property
    def awaits(self) -> bool:
        """Whether Envoy owes an answer. Clusters may wait for health checks."""
        return any(sent for kind, sent in self._sent.items() if kind is not Kind.CLUSTERS)

    @property
    def settled(self) -> bool:
        """Whether Envoy has accepted or refused everything that it should have."""
        if self.awaits or any(kind in self._wanted for kind in _WHOLE - self._subscribed.keys()):
            return False
        waiting = () if self.held else self._pending[Kind.LISTENERS]
        return not (
            any(self._gone[kind] for kind in _WHOLE)
            or any(any(self._ready(kind)) for kind in (Kind.CLUSTERS, Kind.ENDPOINTS))
            or any(self.refusal(name) is None for name in waiting)
            or not all(map(self._has_cluster, self._on_way))
        )

    def lacks(self, name: str) -> bool:
        """Whether Envoy has yet to accept or refuse the listener of this name, its cluster or endpoints."""
        has = self._has_cluster(name) and all(
            (wanted := self._wanted.get(kind, _NONE).get(name)) is None
            or wanted.version == self._has[kind].get(name)
            for kind in (Kind.ENDPOINTS, Kind.LISTENERS)
        )
        return not has and self.refusal(name) is None

    def refusal(self, name: str) -> str | None:
        """Why Envoy has refused the listener of this name, its cluster or its endpoints, if it has."""
        kinds = Kind.LISTENERS, Kind.CLUSTERS, Kind.ENDPOINTS
        return next((self._refused[kind][name] for kind in kinds if name in self._refused[kind]), None)

    def has_all_but_listeners(self) -> bool:
        """Whether Envoy has accepted all clusters and their endpoints, or refused them."""
        kinds = Kind.CLUSTERS, Kind.ENDPOINTS
        return not any(self._pending[kind] or self._sent[kind] for kind in kinds)

    # The next response.

    def _next(self, kind: Kind) -> Response | None:
        removed = self._removable(kind)
        if removed and kind is Kind.LISTENERS:
            return self._response(kind, removed=removed)
        if names := self._batch(kind):
            return self._response(kind, names)
        if removed:
            return self._response(kind, removed=removed)
        return self._response(kind) if kind in self._owed else None

    def _response(self, kind: Kind, names: Collection[str] = (), removed: Collection[str] = ()) -> Response:
        wanted, pending = self._wanted[kind], self._pending[kind]
        for name in names:
            del pending[name]
        resources = {name: wanted[name] for name in names}
        return Response(kind, str(next(self._nonces)), resources, removed)

    def _removable(self, kind: Kind) -> list[str]:
        gone = self._gone[kind]
        if kind is Kind.CLUSTERS:
            # Listeners go first.
            gone = gone - self._has[Kind.LISTENERS].keys()
        elif kind is Kind.ENDPOINTS:
            # Envoy unsubscribes from endpoints that it has, once their cluster is gone.
            gone = gone - self._has[kind].keys()
        found = sorted(gone)[: _AT_ONCE * 4]
        on_way = {name for sent in self._sent[kind] for name in sent.removed}
        return [name for name in found if name not in on_way]

    def _batch(self, kind: Kind) -> list[str]:
        halves = self._halves[kind]
        while halves:
            if names := [name for name in halves.popleft() if name in self._pending[kind]]:
                return names
        found, size = [], 0
        for name in self._ready(kind):
            found.append(name)
            size += len(self._wanted[kind][name].content)
            if len(found) == _AT_ONCE or size > _SIZE:
                break
        return found

    def _ready(self, kind: Kind) -> Iterator[str]:
        """The names of resources that can be sent now."""
        pending = self._pending[kind]
        match kind:
            case Kind.CLUSTERS:
                return iter(pending)
            case Kind.LISTENERS:
                return iter(()) if self.held else (name for name in pending if self._has_cluster(name))
            case _:
                subscribed, sent = self._subscribed.get(kind, set()), self._sent[kind]
                # What has changed while it was on its way follows the answer.
                known = (name for name in pending if name in subscribed)
                return (name for name in known if not any(name in one.resources for one in sent))

    def _has_cluster(self, name: str) -> bool:
        """Whether Envoy has the wanted cluster of this name, with endpoints."""
        wanted = self._wanted.get(Kind.CLUSTERS, _NONE).get(name)
        # Envoy has accepted the endpoints after it has got the cluster.
        known = self._on_way.get(name) or self._has[Kind.CLUSTERS].get(name)
        return wanted is None or (wanted.version == known and name in self._has[Kind.ENDPOINTS])

    def _repeat_endpoints(self, clusters: Collection[str]) -> None:
        """A cluster that replaces another one waits for its endpoints: Envoy does not ask for them again."""
        # The answer to what is on its way is one of the former cluster.
        self._sent[Kind.ENDPOINTS] = [
            replace(sent, resources={n: one for n, one in sent.resources.items() if n not in clusters})
            for sent in self._sent[Kind.ENDPOINTS]
        ]
        for name in clusters:
            self._has[Kind.ENDPOINTS].pop(name, None)
            self._compare(Kind.ENDPOINTS, name)

    # Answers.

    def _accepted(self, kind: Kind, sent: Response) -> None:
        has = self._has[kind]
        self.accepted += len(sent.resources) + len(sent.removed)
        for name, one in sent.resources.items():
            has[name] = one.version
            self._compare(kind, name)
            if kind is Kind.LISTENERS:
                self.unproven.add(name)
        for name in sent.removed:
            has.pop(name, None)
            if kind is Kind.ENDPOINTS:
                has[name] = _UNKNOWN
            self._gone[kind].discard(name)
            self._compare(kind, name)
            if kind is Kind.LISTENERS:
                self.unproven.discard(name)

    def _rejected(self, kind: Kind, sent: Response, error: str) -> None:
        names = list(sent.resources)
        if len(names) == 1:
            [name] = names
            wanted = self._wanted[kind].get(name)
            if wanted is not None and wanted.version == sent.resources[name].version:
                self._refused[kind][name] = error
            else:
                self._compare(kind, name)
            return
        for name in names:
            self._compare(kind, name)
        half = len(names) // 2
        self._halves[kind].extendleft((names[half:], names[:half]))

    def _compare(self, kind: Kind, name: str) -> None:
        """Find out what has to be sent for this resource."""
        wanted, version = self._wanted.get(kind, _NONE).get(name), self._has[kind].get(name)
        self._refused[kind].pop(name, None)
        self._gone[kind].discard(name)
        self._pending[kind].pop(name, None)
        if wanted is None:
            if version is not None or name in self._subscribed.get(kind, ()):
                self._gone[kind].add(name)
        elif wanted.version != version:
            self._pending[kind][name] = None


def _same(one: Resource | None, other: Resource | None) -> bool:
    return one is not None and other is not None and one.version == other.version
