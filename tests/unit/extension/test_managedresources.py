"""ManagedResources: names, contents, and what their conditions mean."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import brotli
import pytest

from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.models.objects import Object
from workers.core.owned import managedresources
from workers.core.owned.managedresources import Bundle


@cases(
    "data, sum_",
    {
        "C.3+M-1-one-value": (
            {"data.yaml.br": b"abc"},
            "dfe7a23fefeea519e9bbfdd1a6be94c4b2e4529dd6b7cbea83f9959c2621b13c",
        ),
        "C.3+M-1-in-order-of-keys": (
            {"b": b"2", "a": b"1"},
            "33b675636da5dcc86ec847b38c08fa49ff1cace9749931e0a5d4dfdbdedd808a",
        ),
        "C.3+M-1-nothing": ({}, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
    },
)
def test_checksums(data: dict[str, bytes], sum_: str) -> None:
    assert managedresources.checksum(data) == sum_


@rule("C.3", "M-1", "M-3", "A.11")
def test_names_of_secrets_follow_from_their_data() -> None:
    bundle = Bundle("local-ext-shoot", "shoot--local--local", {"data.yaml.br": b"abc"})
    name = "managedresource-local-ext-shoot-dfe7a23f"
    assert bundle.secret_name == name
    assert managedresources.managed_resource(bundle) == {
        "apiVersion": "resources.gardener.cloud/v1alpha1",
        "kind": "ManagedResource",
        "metadata": {
            "name": "local-ext-shoot",
            "namespace": "shoot--local--local",
            "annotations": {"reference.resources.gardener.cloud/secret-76999865": name},
        },
        "spec": {
            "secretRefs": [{"name": name}],
            "injectLabels": {"shoot.gardener.cloud/no-cleanup": "true"},
            "keepObjects": False,
        },
    }
    assert managedresources.secret(bundle) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": "shoot--local--local",
            "labels": {"resources.gardener.cloud/garbage-collectable-reference": "true"},
        },
        "type": "Opaque",
        "immutable": True,
        "data": {"data.yaml.br": "YWJj"},
    }


@cases(
    "namespace, labels",
    {
        "M-3-garden": ("garden", {"gardener.cloud/role": "seed-system-component"}),
        "M-3-shoot": ("shoot--a--b", None),
    },
)
def test_in_a_seed(namespace: str, labels: dict[str, str] | None) -> None:
    made = managedresources.managed_resource(managedresources.for_seed("x", namespace, []))
    assert made["metadata"].get("labels") == labels
    assert made["spec"]["class"] == "seed"
    assert "injectLabels" not in made["spec"]


def thing(kind: str, name: str, **content: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name}, **content}


@rule("M-2")
def test_equal_objects_in_any_order_encode_equally() -> None:
    one, other = thing("Secret", "b", x=1, a=2), thing("ConfigMap", "c")
    packed = managedresources.packed([one, other])
    turned = {name: one[name] for name in reversed(one)}
    assert managedresources.packed([other, turned]) == packed
    assert brotli.decompress(packed["data.yaml.br"]).decode() == (
        "kind: ConfigMap\nmetadata:\n  name: c\n"
        "---\n"
        "a: 2\nkind: Secret\nmetadata:\n  name: b\nx: 1\n"
    )  # fmt: skip


def managed(observed: int | None = 3, **conditions: str) -> Object:
    said = [{"type": f"Resources{type_}", "status": status} for type_, status in conditions.items()]
    status = {"conditions": said} | ({"observedGeneration": observed} if observed else {})
    return Object({"metadata": {"generation": 3}, "status": status})


@cases(
    "found, problem",
    {
        "M-6-well": (managed(Applied="True", Healthy="True"), ""),
        "M-6-well-but-progressing": (managed(Applied="True", Healthy="True", Progressing="True"), ""),
        "M-6-older-generation": (
            managed(2, Applied="True", Healthy="True"),
            "the resource manager has not looked at it yet",
        ),
        "M-6-no-generation": (
            managed(None, Applied="True", Healthy="True"),
            "the resource manager has not looked at it yet",
        ),
        "M-6-failed": (managed(None, Applied="False"), "ResourcesApplied is False"),
        "M-6-nothing-said": (managed(), "ResourcesApplied is not reported yet"),
        "M-6-applied": (managed(Applied="False", Healthy="True"), "ResourcesApplied is False"),
        "M-6-half-said": (managed(Applied="True"), "ResourcesHealthy is not reported yet"),
        "M-6-unknown": (managed(Applied="True", Healthy="Unknown"), "ResourcesHealthy is Unknown"),
        "M-6-null": (
            Object({"metadata": {"generation": 3}, "status": {"observedGeneration": 3, "conditions": None}}),
            "ResourcesApplied is not reported yet",
        ),
    },
)
def test_when_all_is_well(found: Object, problem: str) -> None:
    assert managedresources.unhealthy(found) == problem


def leaving(status: str, reason: str, message: str) -> Object:
    said = {"type": "ResourcesApplied", "status": status, "reason": reason, "message": message}
    return Object({"status": {"conditions": [said]}})


INVALID = "x: ERROR during apply of object v1/Secret/a/b is Invalid: no"
CONFIGURATION = ("ERR_CONFIGURATION_PROBLEM",)


@cases(
    "found, why",
    {
        "E-2-pending": (leaving("False", "DeletionPending", "c is left"), (": c is left", ())),
        "E-2-invalid": (leaving("False", "DeletionFailed", INVALID), (f": {INVALID}", CONFIGURATION)),
        "E-2-no-problem": (leaving("True", "DeletionFailed", INVALID), ("", ())),
        "E-2-not-about-deletion": (leaving("False", "ApplyFailed", INVALID), ("", ())),
        "E-2-nothing-said": (Object({}), ("", ())),
    },
)
def test_why_it_does_not_go(found: Object, why: tuple[str, tuple[str, ...]]) -> None:
    assert managedresources.deletion_problem(found) == why


def being_deleted(reason: str = "DeletionPending", **annotations: str) -> Object:
    said = {"type": "ResourcesApplied", "status": "Progressing", "reason": reason}
    named = {f"gardener.cloud/{name}": value for name, value in annotations.items()}
    metadata = {"deletionTimestamp": "2026-09-01T10:00:00Z", "annotations": named}
    return Object({"metadata": metadata, "status": {"conditions": [said]}})


def asked_at(seconds: float) -> Object:
    return being_deleted(timestamp=f"2026-09-01T10:00:{seconds:09.6f}+00:00")


@cases(
    "found, pause",
    {
        "never-asked": (being_deleted(), 0.0),
        "it-has-not-begun": (being_deleted("ApplySucceeded"), None),
        "it-has-failed": (being_deleted("DeletionFailed"), None),
        "it-has-been-asked": (being_deleted(operation="reconcile"), None),
        "its-own-pace-is-as-good": (asked_at(20.0), None),
        "long-pending-long-pause": (asked_at(8.0), 2.0),
        "the-pause-is-over": (asked_at(4.0), 0.0),
        "asked-before-its-deletion": (being_deleted(timestamp="2026-09-01T09:00:00Z"), 0.0),
        "not-being-deleted": (leaving("False", "DeletionPending", "class has changed"), None),
    },
)
def test_when_the_resource_manager_is_asked_to_check(found: Object, pause: float | None) -> None:
    now = datetime(2026, 9, 1, 10, 0, 10, tzinfo=UTC)
    assert managedresources.next_look(found, now) == pause


def test_a_resource_manager_is_not_asked_twice_at_once() -> None:
    now = datetime(2026, 9, 1, 10, 0, 0, 100000, tzinfo=UTC)
    assert managedresources.next_look(asked_at(0.05), now) == pytest.approx(0.15)
