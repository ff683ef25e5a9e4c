"""AdmissionReviews as API servers send them, and objects after the answers."""

from __future__ import annotations

import base64
from typing import Any

import orjson

from tests.support.patching import patched
from webhooks.answering import Answer
from windowbox.models.objects import Json

UID = "7d9c0a10-0000-4000-8000-000000000006"


def admission_review(
    object: Json, resource: str, /, *, operation: str = "CREATE", **request: Any
) -> dict[str, Any]:
    """A review of an object; `request` replaces fields of the request."""
    group, _, version = str(object["apiVersion"]).rpartition("/")
    metadata = object["metadata"]
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": UID,
            "kind": {"group": group, "version": version, "kind": object["kind"]},
            "resource": {"group": group, "version": version, "resource": resource},
            "name": metadata["name"],
            "namespace": metadata.get("namespace", ""),
            "operation": operation,
            "userInfo": {"username": "admin"},
            "object": object,
            "oldObject": None,
            "dryRun": False,
            **request,
        },
    }


def response(body: bytes) -> dict[str, Any]:
    """The response in the answer of a server."""
    return dict(orjson.loads(body)["response"])


def mutated(object: Json, answered: dict[str, Any]) -> Any:
    """The object after the patch of a response."""
    if "patch" not in answered:
        return object
    return patched(object, orjson.loads(base64.b64decode(answered["patch"])))


def changed(object: Json, answer: Answer) -> Any:
    """The object after a decision."""
    return patched(object, orjson.loads(answer.patch)) if answer.patch else object
