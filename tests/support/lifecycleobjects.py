"""DNSRecords as the API would show them, for tables of cases."""

from __future__ import annotations

from typing import Any

from windowbox.models.objects import Object

FINALIZER = "extensions.gardener.cloud/dnsrecord"


def record(
    annotation: str | None = None,
    last: str | None = None,
    *,
    deleting: bool = False,
    timestamp: str | None = None,
    updated: str = "2026-09-01T10:15:31Z",
    class_: str | None = None,
    type_: str = "local",
    generation: int = 1,
    finalizers: tuple[str, ...] = (),
    uid: str = "5b0c7e52",
    namespace: str = "shoot--local--local",
) -> Object:
    """A DNSRecord; `last` is its last operation, like `Create/Succeeded`."""
    annotations = {"gardener.cloud/operation": annotation, "gardener.cloud/timestamp": timestamp}
    metadata: dict[str, Any] = {
        "name": "web",
        "namespace": namespace,
        "uid": uid,
        "resourceVersion": "77",
        "generation": generation,
        "annotations": {key: value for key, value in annotations.items() if value is not None},
    }
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    if deleting:
        metadata["deletionTimestamp"] = "2026-09-01T10:20:00Z"
    spec = {"type": type_, "name": "web.local.gardener.cloud", "recordType": "A", "values": ["10.0.0.1"]}
    raw: dict[str, Any] = {"metadata": metadata, "spec": spec | ({"class": class_} if class_ else {})}
    if last:
        type_of_run, state = last.split("/")
        raw["status"] = {
            "lastOperation": {"type": type_of_run, "state": state, "lastUpdateTime": updated},
            "observedGeneration": 1,
        }
    return Object(raw)
