"""Writes of windowbox to the API server in one namespace, from its audit log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import orjson

from tests.support.kindworld import KindWorld
from tools.bench.audit import WRITES

_OURS = "system:windowbox:"


def writes_in(world: KindWorld, namespace: str) -> list[str]:
    """All writes there so far, in order, with the role: `patch dnsrecords worker`."""
    found = []
    for event in _about(world, namespace):
        user, about = event["user"]["username"], event.get("objectRef", {})
        ours = user.startswith(_OURS) and about.get("namespace") == namespace
        if ours and event["stage"] == "ResponseComplete" and event["verb"] in WRITES:
            part = f"/{about['subresource']}" if "subresource" in about else ""
            found.append(f"{event['verb']} {about['resource']}{part} {user.removeprefix(_OURS)}")
    return found


def creators(world: KindWorld, namespace: str, plural: str) -> Counter[str]:
    """Who has created how many objects of a kind there so far."""
    found: Counter[str] = Counter()
    for event in _about(world, namespace):
        about, code = event.get("objectRef", {}), event.get("responseStatus", {}).get("code")
        if (about.get("namespace"), about.get("resource"), event["verb"]) == (namespace, plural, "create"):
            found[event["user"]["username"]] += event["stage"] == "ResponseComplete" and code == 201
    return found


def _about(world: KindWorld, namespace: str) -> Iterator[dict[str, Any]]:
    """What the log says of a namespace, and of others that contain its name: only this much is parsed."""
    log = (world.plane.kubeconfig.parent / "audit.log").read_bytes()
    name = namespace.encode()
    return (orjson.loads(line) for line in log.split(b"\n")[:-1] if name in line)
