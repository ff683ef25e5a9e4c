"""Objects that windowbox created for one object, and commands that show them: from records of its runs."""

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
_READS = frozenset({"look", "list", "records", "sharers", "patience", "signs"})
"""Calls that only read."""
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
        elsewhere = ""
        if self.cluster not in ("", cluster) and self.secret:
            namespace, _, name = self.secret.rpartition("/")
            read = f"kubectl -n {namespace} get secret {name} -o jsonpath='{{.data.kubeconfig}}' | base64 -d"
            elsewhere = f" --kubeconfig <({read})"
        within = f" -n {self.namespace}" if self.namespace else ""
        look = f"kubectl{elsewhere}{within} get {self.kind.lower()} {self.name} -o yaml"
        if self.kind not in _TRACEABLE:
            return (look,)
        there = f" --cluster {self.cluster}" if elsewhere else ""
        return look, f"windowbox trace {self.kind.lower()} {self.namespace}/{self.name}{there}"

    def as_json(self, cluster: str) -> dict[str, Any]:
        at = self.at.isoformat() if self.at else None
        return {**asdict(self), "at": at, "commands": list(self.commands(cluster))}


def objects(runs: Iterable[RunRecord]) -> list[OwnedObject]:
    """Each object once with its last change, in the order of their first changes."""
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
    result = []
    for one in found.values():
        home = found.get((one.cluster, NAMESPACES.kind, "", one.namespace))
        if home and home.did in _NO_MORE and not home.error and one.did not in _NO_MORE:
            # Kubernetes deletes the content of a namespace with it, without a call of ours.
            one = replace(one, did=TAKEN_ALONG, at=home.at)
        result.append(one)
    return result


def summary(call: Call) -> str | None:
    """One line for `trace`; empty for calls that are not shown, None for calls of other kinds."""
    if call.door in _READS:
        return ""
    if call.door == "provider":
        secret = call.request.get("secret", "") if isinstance(call.request, dict) else ""
        cluster = call.answer.get("cluster") if isinstance(call.answer, dict) else call.answer
        return (f"provider cluster {cluster}, " if cluster else "") + f"from the Secret {secret}"
    found = change(call)
    if found is None:
        return None
    return "" if found.did == LEFT else f"{found.did} {found.title}"


def change(call: Call) -> OwnedObject | None:
    """The change that the call made to an object; None for calls that change none."""
    did = _CHANGES.get(call.door)
    made = _object_of(call)
    if did is None or made is None:
        return None
    error = f"{call.error['type']}: {call.error['message']}" if call.error else ""
    if not error and call.answer in (False, None):
        # Without an answer nothing changed: the object did not exist, or was as requested already.
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


def _object_of(call: Call) -> OwnedObject | None:
    """The object that a call is about: by its Secret, by a manifest, or by its name."""
    request = call.request if isinstance(call.request, Mapping) else {"object": call.request}
    if call.door in ("tell", "take back") and isinstance(call.request, Mapping):
        # The content of Secrets is not recorded.
        namespace, _, name = str(request.get("secret", "")).partition("/")
        return OwnedObject(SECRETS.kind, namespace, name, "")
    about = request.get("object")
    if call.door in ("apply", "claim", "create") and isinstance(about, Mapping):
        metadata = about.get("metadata") or {}
        # For generateName, the answer holds the name.
        name = str(metadata.get("name") or call.answer or f"{metadata.get('generateName', '')}…")
        cluster, namespace = str(request.get("cluster") or ""), str(metadata.get("namespace") or "")
        return OwnedObject(str(about.get("kind")), namespace, name, "", cluster=cluster)
    match = _NAMED.fullmatch(about) if isinstance(about, str) else None
    if match is None or match["plural"] not in _PLURALS:
        return None
    kind, cluster = _PLURALS[match["plural"]].kind, match["cluster"] or "runtime"
    return OwnedObject(kind, match["namespace"] or "", match["name"], "", cluster=cluster)
