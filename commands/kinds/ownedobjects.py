"""Owned objects of one object, from the records of its runs, with commands that show them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from bus.messages import Call, RunRecord
from windowbox.kinds import RESOURCES
from windowbox.models.refs import DNSRECORDS, NAMESPACES, SECRETS, SERVICES

WROTE, CHANGED, LEFT = "wrote", "changed", "left alone"
DELETED, GONE, TAKEN_ALONG = "deleted", "found gone", "gone with its namespace"
_NO_MORE = frozenset({DELETED, GONE, TAKEN_ALONG})
_CHANGES = {
    "apply": WROTE, "claim": WROTE, "create": WROTE, "tell": WROTE,
    "merge": CHANGED, "delete": DELETED, "take back": DELETED,
}  # fmt: skip
_NAMED = re.compile(r"(?P<plural>\S+) (?:(?P<namespace>[^/\s]+)/)?(?P<name>\S+?)(?: \((?P<cluster>.+)\))?")
_PLURALS = {resource.plural: resource for resource in RESOURCES.values()}
_TRACEABLE = frozenset({DNSRECORDS.kind, SERVICES.kind})
"""Owned kinds that `windowbox trace` shows as well."""


@dataclass(frozen=True)
class OwnedObject:
    """An owned object, and the last change to it by a run."""

    kind: str
    namespace: str
    name: str
    did: str
    error: str = ""
    cluster: str = ""
    """Empty for the owner's cluster."""
    at: datetime | None = None
    secret: str = ""
    """The provider Secret of its cluster, `NAMESPACE/NAME`; empty for the owner's cluster."""

    @property
    def title(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    def commands(self, cluster: str) -> tuple[str, ...]:
        """Commands that show it, for a kubectl that leads to `cluster`."""
        if self.did in _NO_MORE and not self.error:
            return ()
        elsewhere = self._elsewhere() if self.cluster not in ("", cluster) else ""
        within = f" -n {self.namespace}" if self.namespace else ""
        look = f"kubectl{elsewhere}{within} get {self.kind.lower()} {self.name} -o yaml"
        if self.kind not in _TRACEABLE:
            return (look,)
        there = f" --cluster {self.cluster}" if elsewhere else ""
        return look, f"windowbox trace {self.kind.lower()} {self.namespace}/{self.name}{there}"

    def as_json(self, cluster: str) -> dict[str, Any]:
        at = self.at.isoformat() if self.at else None
        return {**asdict(self), "at": at, "commands": list(self.commands(cluster))}

    def _elsewhere(self) -> str:
        namespace, _, name = self.secret.rpartition("/")
        read = f"kubectl -n {namespace} get secret {name} -o jsonpath='{{.data.kubeconfig}}' | base64 -d"
        return f" --kubeconfig <({read})" if name else ""


def objects(runs: Iterable[RunRecord]) -> list[OwnedObject]:
    """Each object once, in the order in which they were first touched."""
    found: dict[tuple[str, ...], OwnedObject] = {}
    for run in sorted(runs, key=lambda run: run.started):
        secret = ""
        for call in run.calls:
            if call.door == "provider" and isinstance(call.request, Mapping):
                secret = str(call.request.get("secret", ""))
            made = change(call)
            if made is None:
                continue
            key = (made.cluster, made.kind, made.namespace, made.name)
            known = found.get(key)
            if (made.did == LEFT and known) or (made.did == GONE and (not known or known.did in _NO_MORE)):
                continue
            found[key] = replace(made, at=run.started, secret=secret)
    return [_removed_with_namespace(one, found) for one in found.values()]


def _removed_with_namespace(one: OwnedObject, found: Mapping[tuple[str, ...], OwnedObject]) -> OwnedObject:
    home = found.get((one.cluster, NAMESPACES.kind, "", one.namespace))
    if home is None or home.did not in _NO_MORE or one.did in _NO_MORE or home.error:
        return one
    return replace(one, did=TAKEN_ALONG, at=home.at)


def change(call: Call) -> OwnedObject | None:
    """The change that the call made to an object; None for calls that change none."""
    did = _CHANGES.get(call.door)
    made = _of_manifest(call) or _of_secret(call) or _of_name(call)
    if did is None or made is None:
        return None
    error = f"{call.error['type']}: {call.error['message']}" if call.error else ""
    if not error and call.answer in (False, None):
        # The object did not exist; the Secret was up to date; the name exists.
        did = GONE if call.door in ("delete", "merge") else LEFT
    return replace(made, did=did, error=error)


def lines(found: Iterable[OwnedObject], cluster: str) -> list[str]:
    """One line for each object, and the commands that show it."""
    found_lines = []
    for one in found:
        at = f"{one.at.astimezone():%H:%M:%S}" if one.at else ""
        failed = f", but failed: {one.error}" if one.error else ""
        where = f" in {one.cluster}" if one.cluster not in ("", cluster) else ""
        found_lines.append(f"  {at}  {one.did} {one.title}{where}{failed}")
        found_lines += [f"            {command}" for command in one.commands(cluster)]
    return found_lines


def _of_secret(call: Call) -> OwnedObject | None:
    """Of Secrets, requests record the name only, not the content."""
    if call.door not in ("tell", "take back") or not isinstance(call.request, Mapping):
        return None
    namespace, _, name = str(call.request.get("secret", "")).partition("/")
    return OwnedObject(SECRETS.kind, namespace, name, "")


def _of_manifest(call: Call) -> OwnedObject | None:
    if call.door not in ("apply", "claim", "create"):
        return None
    object = call.request.get("object") if isinstance(call.request, Mapping) else None
    if not isinstance(object, Mapping):
        return None
    metadata = object.get("metadata") or {}
    # For generateName, the answer holds the name.
    name = metadata.get("name") or str(call.answer or f"{metadata.get('generateName', '')}…")
    cluster = str(call.request.get("cluster") or "")
    return OwnedObject(
        str(object.get("kind")), str(metadata.get("namespace") or ""), str(name), "", cluster=cluster
    )


def _of_name(call: Call) -> OwnedObject | None:
    text = call.request.get("object") if isinstance(call.request, Mapping) else call.request
    match = _NAMED.fullmatch(text) if isinstance(text, str) else None
    if match is None or match["plural"] not in _PLURALS:
        return None
    kind = _PLURALS[match["plural"]].kind
    return OwnedObject(
        kind, match["namespace"] or "", match["name"], "", cluster=match["cluster"] or "runtime"
    )
