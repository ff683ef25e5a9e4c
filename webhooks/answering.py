"""Decodes an AdmissionReview, calls the webhook, and encodes the answer."""

from __future__ import annotations

import base64
import logging
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from webhooks import jsonpatch
from webhooks.review import Context, Denied, Review, Undecodable, Wanted, Webhook
from windowbox.models.objects import mapping

logger = logging.getLogger(__name__)

BODY_LIMIT = 7 << 20
_GROUP = "admission.k8s.io"
_VERSIONS = (f"{_GROUP}/v1", f"{_GROUP}/v1beta1")
_LONGEST_MESSAGE = 4096
_LONGEST_NAME = 253
"""The API's limit for names of objects and namespaces, which the journal's subjects contain."""


@dataclass(frozen=True)
class Answer:
    """A decision about one review."""

    allowed: bool
    code: int = 200
    message: str = ""
    patch: bytes = b""
    """A JSON patch, if the object is to be changed."""

    @property
    def outcome(self) -> str:
        """In one word: allowed, patched, denied or failed."""
        if self.allowed:
            return "patched" if self.patch else "allowed"
        return "denied" if self.code == 403 else "failed"

    def encoded(self, uid: str = "", version: str = _VERSIONS[0]) -> bytes:
        """The AdmissionReview."""
        status: dict[str, Any] = {"metadata": {}}
        if self.message:
            status["message"] = self.message
        if self.code == 403:
            status["reason"] = "Forbidden"
        status["code"] = self.code
        response: dict[str, Any] = {"uid": uid, "allowed": self.allowed, "status": status}
        if self.patch:
            response["patch"] = base64.b64encode(self.patch).decode()
            response["patchType"] = "JSONPatch"
        return orjson.dumps({"apiVersion": version, "kind": "AdmissionReview", "response": response})


def refused(code: int, message: str) -> Answer:
    """An answer that does not allow the request. Its message is cut, since the journal keeps it too."""
    return Answer(False, code, message[:_LONGEST_MESSAGE])


@dataclass(frozen=True)
class Asked:
    """A decoded AdmissionReview."""

    version: str
    """The API version of the AdmissionReview, which the answer repeats."""
    review: Review


def read(webhook: Webhook, body: bytes) -> Asked | tuple[Answer, str, str]:
    """The review in the body of a request; else the answer, with the uid and version to encode it with."""
    uid, version = "", _VERSIONS[0]
    try:
        found = _object(orjson.loads(body) if body else None, "the AdmissionReview")
        version = str(found.get("apiVersion"))
        if version not in _VERSIONS or found.get("kind") != "AdmissionReview":
            version = _VERSIONS[0]
            raise Undecodable("expected an AdmissionReview of admission.k8s.io/v1 or v1beta1")
        request = _object(found.get("request"), "the request")
        uid = _text(request, "uid")
        kind = mapping(request.get("kind"))
        group, of_kind, name = (_text(kind, part) for part in ("group", "version", "kind"))
        if not webhook.registration.serves(group, of_kind, name):
            raise Undecodable(f"unexpected request kind {group}/{of_kind}, Kind={name}")
        old = request.get("oldObject")
        review = Review(
            uid=uid,
            group=group,
            version=of_kind,
            kind=name,
            resource=_name(mapping(request.get("resource")), "resource"),
            subresource=_name(request, "subResource"),
            namespace=_name(request, "namespace"),
            name=_name(request, "name"),
            operation=_name(request, "operation"),
            object=_kubernetes(request.get("object"), "object"),
            old_object=None if old is None else _kubernetes(old, "oldObject"),
            dry_run=request.get("dryRun") is True,
        )
        return Asked(version, review)
    except orjson.JSONDecodeError as error:
        why = f"the body is not JSON: {error.msg}" if body else "request body is empty"
    except Undecodable as error:
        why = str(error)
    return refused(400, why), uid, version


def _kubernetes(value: Any, what: str) -> Mapping[str, Any]:
    found = _object(value, what)
    metadata = _object(found.get("metadata") or {}, f"{what}.metadata")
    for field in ("namespace", "name"):
        _require_short(metadata.get(field), f"{what}.metadata.{field}")
    return found


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if value is None:
        raise Undecodable(f"{what} is missing: there is no content to decode")
    if not isinstance(value, Mapping):
        raise Undecodable(f"{what} is not a JSON object")
    return value


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str | None):
        raise Undecodable(f"{name} is not a string")
    return value or ""


def _name(fields: Mapping[str, Any], name: str) -> str:
    value = _text(fields, name)
    _require_short(value, name)
    return value


def _require_short(value: object, what: str) -> None:
    if isinstance(value, str) and len(value) > _LONGEST_NAME:
        raise Undecodable(f"{what} has more than {_LONGEST_NAME} characters")


def decide(webhook: Webhook, review: Review, context: Context) -> Answer:
    """The webhook's decision, or Wanted. Errors in it, even bugs, become answers."""
    if review.deleting and webhook.skip_deleting:
        return Answer(True)
    try:
        changed = webhook.act(review, context)
        operations = [] if changed is None else jsonpatch.between(review.object, changed)
        return Answer(True, patch=orjson.dumps(operations) if operations else b"")
    except Wanted:
        raise
    except Denied as error:
        return refused(403, str(error))
    except Undecodable as error:
        return refused(400, str(error))
    except (RecursionError, orjson.JSONEncodeError):
        return refused(400, "the object is nested too deep")
    except Exception as error:  # a bug of a webhook, triggered by the object
        # The error's text may quote the object, which may hold secrets: neither log nor answer contains it.
        name, what = webhook.registration.name, type(error).__name__
        places = " > ".join(
            f"{Path(frame.f_code.co_filename).name}:{line} {frame.f_code.co_name}"
            for frame, line in traceback.walk_tb(error.__traceback__)
        )
        logger.error("webhook %s: bug at %s/%s: %s in %s", name, review.namespace, review.name, what, places)
        return refused(500, f"panic: {what} [recovered]")
