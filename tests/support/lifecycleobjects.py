"""DNSRecords as the API would show them, for tables of cases."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from windowbox.models.objects import Object

FINALIZER = "extensions.gardener.cloud/dnsrecord"
DONE = "Create/Succeeded"
EARLIER, NOW = "2026-09-01T10:15:30Z", "2026-09-01T10:15:31Z"


def record(
    annotation: str | None = None,
    last: str | None = None,
    *,
    deleting: bool = False,
    timestamp: str | None = None,
    updated: str = NOW,
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


records = st.builds(
    record,
    st.sampled_from([None, "reconcile", "migrate", "restore", "wait-for-state", "keepalive"]),
    st.sampled_from(
        [
            None,
            DONE,
            "Create/Error",
            "Migrate/Error",
            "Migrate/Succeeded",
            "Restore/Error",
            "Delete/Processing",
        ]
    ),
    deleting=st.booleans(),
    generation=st.integers(1, 3),
    finalizers=st.sampled_from([(), (FINALIZER,), ("other/one",), ("other/one", FINALIZER)]),
)
"""DNSRecords of any operation, with and without finalizers."""
