"""Objects that a test leaves in an API server of several tests: workers of the next would serve them, too."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sandbox.servers.apiserver import ApiServer
from tests.support.servers import ControlPlane
from windowbox.errors import Refused
from windowbox.models.refs import CLUSTERS, Resource


@dataclass
class _Used:
    """An API server, and the kinds that a test has had served there."""

    api: ApiServer
    kinds: set[Resource] = field(default_factory=set)


_used: dict[str, _Used] = {}


def expect(plane: ControlPlane, *kinds: Resource) -> None:
    """Note that a test makes objects of these kinds, and Clusters."""
    _used.setdefault(plane.url, _Used(plane.api)).kinds.update(kinds, (CLUSTERS,))


@contextlib.contextmanager
def removed() -> Iterator[None]:
    """Remove at the end what a test has left, without asking whoever holds on to it."""
    _used.clear()
    yield
    for used in _used.values():
        # Of what uses others, nothing may be left when these go.
        for kind in sorted(used.kinds, key=lambda kind: kind == CLUSTERS):
            _remove_all(used.api, kind)
    _used.clear()


def _remove_all(api: ApiServer, kind: Resource) -> None:
    for found in json.load(api.request("GET", kind.path())).get("items") or []:
        metadata: dict[str, Any] = found["metadata"]
        path = kind.path(metadata.get("namespace", ""), metadata["name"])
        with contextlib.suppress(Refused):  # it has gone meanwhile
            if metadata.get("finalizers"):
                api.merge(path, {"metadata": {"finalizers": None}})
            api.request("DELETE", path).close()
