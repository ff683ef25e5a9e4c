"""The effect of the patches on objects of a real API server."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support import leftovers
from tests.support.lifecycleobjects import FINALIZER
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from windowbox.errors import Refused
from windowbox.models.objects import Object, merge
from windowbox.models.refs import DNSRECORDS
from workers.core.lifecycle import statuses
from workers.core.lifecycle.operations import Flow, Operation, begin_patch, finish_patch, flow

NOW = datetime(2026, 9, 1, 10, 15, 31, tzinfo=UTC)
DESCRIPTIONS = statuses.descriptions_for("DNSRecord")


class Record:
    """One DNSRecord in the API."""

    def __init__(self, plane: ControlPlane, annotation: str | None = None, **spec: Any) -> None:
        leftovers.expect(plane, DNSRECORDS)
        self._api = plane.api
        name = f"web-{uuid.uuid4().hex[:8]}"
        self._path = DNSRECORDS.path("default", name)
        annotations = {"gardener.cloud/operation": annotation} if annotation else {}
        manifest = {
            "apiVersion": "extensions.gardener.cloud/v1alpha1",
            "kind": "DNSRecord",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {
                "type": "local",
                "name": "web.local.gardener.cloud",
                "recordType": "A",
                "values": ["10.0.0.1"],
                "secretRef": {"name": "dns"},
                **spec,
            },
        }
        self.seen = Object(self._api.create(DNSRECORDS.path("default"), manifest))

    def patch(self, change: dict[str, Any] | None, subresource: str = "") -> Object:
        assert change is not None
        self.seen = Object(self._api.merge(self._path + subresource, change))
        return self.seen

    def delete(self) -> Object:
        self.seen = Object(json.load(self._api.request("DELETE", self._path)))
        return self.seen


@rule("O-2", "V-7", "N-1", "W-3")
def test_one_patch_sets_finalizer_and_removes_the_operation(plane: ControlPlane) -> None:
    record = Record(plane, "reconcile")
    found = record.patch(begin_patch(record.seen, FINALIZER, flow(record.seen, FINALIZER)))
    assert found.finalizers == (FINALIZER,)
    assert "gardener.cloud/operation" not in found.annotations


@rule("N-1")
def test_the_first_patch_overwrites_no_unseen_change(plane: ControlPlane) -> None:
    record = Record(plane, "reconcile")
    read_before = record.seen
    record.patch({"metadata": {"annotations": {"gardener.cloud/operation": "migrate"}}})
    with pytest.raises(Refused, match="the object has been modified"):
        record.patch(begin_patch(read_before, FINALIZER, Flow.RECONCILE))


@rule("V-1", "N-2")
def test_the_last_patch_spares_a_recreated_object(plane: ControlPlane) -> None:
    record = Record(plane, "migrate")
    metadata = {**record.seen.metadata, "uid": "00000000-0000-0000-0000-000000000000"}
    other = Object({**record.seen.raw, "metadata": metadata})
    with pytest.raises(Refused, match="uid"):
        record.patch(finish_patch(other, FINALIZER, Flow.MIGRATE))


@rule("N-2")
def test_a_migrated_object_has_no_finalizers(plane: ControlPlane) -> None:
    record = Record(plane, "migrate")
    record.patch({"metadata": {"finalizers": ["example.com/other", FINALIZER]}})
    found = record.patch(finish_patch(record.seen, FINALIZER, Flow.MIGRATE))
    assert found.finalizers == ()
    assert found.annotations == {}


@rule("V-7", "N-1")
def test_a_deleted_object_is_gone_without_our_finalizer(plane: ControlPlane) -> None:
    record = Record(plane)
    record.patch(begin_patch(record.seen, FINALIZER, Flow.RECONCILE))
    assert flow(record.delete(), FINALIZER) is Flow.DELETE
    record.patch(finish_patch(record.seen, FINALIZER, Flow.DELETE))
    with pytest.raises(Refused, match="not found"):
        record.delete()


@rule("U-1", "U-2", "U-3", "S-1")
def test_a_success_removes_the_reported_error(plane: ControlPlane) -> None:
    record = Record(plane)
    error = statuses.failed(Operation.CREATE, DESCRIPTIONS.reconcile, Refused("no", codes=("A",)), 1, NOW)
    said = statuses.created_condition([], Flow.RECONCILE, False, NOW)
    after_error = record.patch({"status": error | {"conditions": said}}, "/status").status
    assert after_error == merge({"conditions": said}, error)

    success = statuses.succeeded(Operation.CREATE, DESCRIPTIONS.reconcile, 1, NOW)
    after_success = record.patch({"status": success}, "/status").status
    assert after_success == merge(after_error, success)
    assert "lastError" not in after_success


@rule("U-2")
def test_an_error_without_codes_has_no_field_for_them(plane: ControlPlane) -> None:
    record = Record(plane)
    error = statuses.failed(Operation.CREATE, DESCRIPTIONS.reconcile, Refused("no"), 1, NOW)
    assert "codes" not in record.patch({"status": error}, "/status").status["lastError"]


def test_the_class_of_an_object_never_changes(plane: ControlPlane) -> None:
    record = Record(plane, **{"class": "seed"})
    with pytest.raises(Refused, match="immutable"):
        record.patch({"spec": {"class": "garden"}})


def test_any_provider_config_is_stored_and_unknown_fields_are_not(plane: ControlPlane) -> None:
    record = Record(plane, providerConfig={"any": {"thing": [1]}}, unheardOf=True)
    assert record.seen.spec["providerConfig"] == {"any": {"thing": [1]}}
    assert "unheardOf" not in record.seen.spec
