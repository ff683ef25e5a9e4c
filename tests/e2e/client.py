"""A client of windowbox as gardenlet is one: creates objects, asks for operations, waits."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sandbox.servers.apiserver import ApiServer
from tests.e2e.witness import PATIENCE, Condition, Version, Witness
from windowbox.models.objects import Object
from windowbox.models.refs import CLUSTERS, DNSRECORDS, NAMESPACES, Resource

OPERATION, TIMESTAMP = "gardener.cloud/operation", "gardener.cloud/timestamp"
FINALIZER = "extensions.gardener.cloud/dnsrecord"


def unready(object: Object) -> str | None:
    """Which of the client's checks fails first, W-1 to W-5; None if the object is ready."""
    last = object.last_operation
    if object.status.get("lastError"):
        return "W-1"
    if object.status.get("observedGeneration") != object.generation:
        return "W-2"
    if OPERATION in object.annotations:
        return "W-3"
    if last.get("state") != "Succeeded":
        return "W-4"
    asked = object.annotations.get(TIMESTAMP)
    if asked and moment(asked).replace(microsecond=0) > moment(last["lastUpdateTime"]):
        return "W-5"
    return None


def ready(object: Object | None) -> bool:
    return object is not None and unready(object) is None


def gone(object: Object | None) -> bool:
    return object is None


def failed(object: Object | None) -> bool:
    return object is not None and object.last_operation.get("state") == "Error"


def moment(text: str) -> datetime:
    """Python's clock knows no nanoseconds."""
    return datetime.fromisoformat(text[:26].rstrip("Z") + "+00:00")


def stamp(*, ahead: float = 0) -> str:
    """Now, as gardenlet spells it, with nanoseconds; by a clock that is so many seconds ahead."""
    return (datetime.now(UTC) + timedelta(seconds=ahead)).strftime("%Y-%m-%dT%H:%M:%S.%f") + "789Z"


@dataclass
class Record:
    """One DNSRecord in the API."""

    api: ApiServer
    witness: Witness
    namespace: str
    name: str
    fqdn: str
    """The name in DNS."""

    @property
    def path(self) -> str:
        return DNSRECORDS.path(self.namespace, self.name)

    def read(self) -> Object:
        return Object(json.load(self.api.request("GET", self.path)))

    def patch(self, change: dict[str, Any], part: str = "") -> Object:
        return Object(self.api.merge(self.path + part, change))

    def annotate(self, **annotations: str | None) -> Object:
        return self.patch({"metadata": {"annotations": annotations}})

    def ask(self, operation: str, *, ahead: float = 0, **spec: Any) -> str:
        """Ask for an operation as gardenlet does; returns the time that was written."""
        at = stamp(ahead=ahead)
        change: dict[str, Any] = {"metadata": {"annotations": {OPERATION: operation, TIMESTAMP: at}}}
        self.patch(change | ({"spec": spec} if spec else {}))
        return at

    def delete(self) -> None:
        self.api.request("DELETE", self.path)

    def until(self, condition: Condition, patience: float = PATIENCE) -> Object:
        """The object, once `condition` holds of it."""
        self.witness.until(self.namespace, self.name, condition, patience)
        return self.witness.now(self.namespace, self.name) or Object({})

    def until_ready(self, asked: str | None = None) -> Object:
        """Like the client, only believe what has the time that was asked with."""
        return self.until(
            lambda now: ready(now) and (not asked or bool(now and now.annotations.get(TIMESTAMP) == asked))
        )

    def until_gone(self) -> None:
        self.witness.until(self.namespace, self.name, gone)

    @property
    def history(self) -> list[Version]:
        return self.witness.history(self.namespace, self.name)


@dataclass
class Space:
    """A namespace of a test's own."""

    api: ApiServer
    witness: Witness
    namespace: str
    zone: str

    def name(self, label: str = "n", zone: str = "") -> str:
        """A name nobody else has, in this zone or another."""
        return f"{label}-{uuid.uuid4().hex[:8]}.{zone or self.zone}"

    def served(self, fqdn: str = "", values: Sequence[str] = ("10.0.0.1",), **more: Any) -> Record:
        """A record that is ready."""
        record = self.record(fqdn, values, **more)
        record.until_ready()
        return record

    def record(
        self,
        fqdn: str = "",
        values: Sequence[str] = ("10.0.0.1",),
        *,
        record_type: str = "A",
        name: str = "",
        annotations: dict[str, str] | None = None,
        finalizers: list[str] | None = None,
        class_: str | None = None,
        **spec: Any,
    ) -> Record:
        asked = {"type": "local", "name": fqdn or self.name(), "recordType": record_type, "values": values}
        spec |= {"class": class_} if class_ else {}
        reference = {"secretRef": {"name": "no-such-secret", "namespace": self.namespace}}
        record = self.raw(asked | reference | spec, annotations or {}, name=name, finalizers=finalizers)
        self.witness.until(self.namespace, record.name, lambda now: now is not None)
        return record

    def raw(
        self,
        spec: dict[str, Any],
        annotations: dict[str, str],
        *,
        name: str = "",
        finalizers: list[str] | None = None,
    ) -> Record:
        """A record with exactly this spec."""
        name = name or f"r-{uuid.uuid4().hex[:8]}"
        record = Record(self.api, self.witness, self.namespace, name, str(spec["name"]))
        metadata = {"name": record.name, "annotations": annotations, "finalizers": finalizers or []}
        self.create(DNSRECORDS, {"metadata": metadata, "spec": spec})
        return record

    def create(self, resource: Resource, manifest: dict[str, Any]) -> None:
        version = f"{resource.group}/{resource.version}" if resource.group else resource.version
        self.api.create(
            resource.path(self.namespace), {"apiVersion": version, "kind": resource.kind} | manifest
        )

    def cluster(self, **shoot: Any) -> None:
        """Make the namespace's Cluster tell of such a Shoot."""
        head = {"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Cluster"}
        about = {"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot"} | shoot
        spec = {"cloudProfile": {}, "seed": {}, "shoot": about}
        path = CLUSTERS.path("", self.namespace)
        self.api.apply(path, head | {"metadata": {"name": self.namespace}, "spec": spec})


def space(api: ApiServer, witness: Witness, zone: str, *, shoot: bool = False) -> Space:
    """A new namespace; with `shoot`, the control plane's of a Shoot."""
    made = f"{'shoot--' if shoot else ''}t-{uuid.uuid4().hex[:8]}"
    labels = {"gardener.cloud/role": "shoot"} if shoot else {}
    api.apply(
        NAMESPACES.path("", made),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": made, "labels": labels}},
    )
    return Space(api, witness, made, zone)
