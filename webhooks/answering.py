"""Decodes the body of a request, calls the webhook, and encodes the AdmissionReview."""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from webhooks import jsonpatch
from webhooks.review import Context, Denied, Review, Undecodable, Webhook
from windowbox.models.objects import mapping

logger = logging.getLogger(__name__)

BODY_LIMIT = 7 << 20
_GROUP = "admission.k8s.io"
_VERSIONS = (f"{_GROUP}/v1", f"{_GROUP}/v1beta1")
_LONGEST_MESSAGE = 4096
_LONGEST_NAME = 253
"""Of objects and namespaces, as the API takes them. Subjects of the journal are made of them."""


@dataclass(frozen=True)
class Answer:
    """A decision about one review."""

    allowed: bool
    code: int = 200
    message: str = ""
    patch: bytes = b""
    """A JSON patch, if the object is to be changed."""

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
    """What is not allowed. The message is bounded, since the journal keeps it, too."""
    return Answer(False, code, message[:_LONGEST_MESSAGE])


@dataclass(frozen=True)
class Asked:
    """A request that could be read."""

    version: str
    """The AdmissionReview's own."""
    review: Review


def read(webhook: Webhook, body: bytes) -> Asked | tuple[Answer, str, str]:
    """The review in the body of a request; or why there is none, with the uid and version to answer with."""
    uid, version = "", _VERSIONS[0]
    try:
        found = _object(orjson.loads(body) if body else None, "the AdmissionReview")
        version = str(found.get("apiVersion"))
        if version not in _VERSIONS or found.get("kind") != "AdmissionReview":
            version = _VERSIONS[0]
            raise Undecodable("expected an AdmissionReview of admission.k8s.io/v1 or v1beta1")
        request = _object(found.get("request"), "the request")
        uid = _text(request, "uid")
        return Asked(version, _review(webhook, uid, request))
    except orjson.JSONDecodeError as error:
        why = f"the body is not JSON: {error.msg}" if body else "request body is empty"
    except Undecodable as error:
        why = str(error)
    return refused(400, why), uid, version


def _review(webhook: Webhook, uid: str, request: Mapping[str, Any]) -> Review:
    kind = mapping(request.get("kind"))
    group, version, name = (_text(kind, part) for part in ("group", "version", "kind"))
    if not webhook.registration.serves(group, version, name):
        raise Undecodable(f"unexpected request kind {group}/{version}, Kind={name}")
    old = request.get("oldObject")
    return Review(
        uid=uid,
        group=group,
        version=version,
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
    """What the webhook decides. Whatever goes wrong in it is an answer, too."""
    if review.deleting and webhook.skip_deleting:
        return Answer(True)
    try:
        changed = webhook.act(review, context)
        operations = [] if changed is None else jsonpatch.between(review.object, changed)
        return Answer(True, patch=orjson.dumps(operations) if operations else b"")
    except Denied as error:
        return refused(403, str(error))
    except Undecodable as error:
        return refused(400, str(error))
    except (RecursionError, orjson.JSONEncodeError):
        return refused(400, "the object is nested too deep")
    except Exception as error:
        # The object may hold what nobody may read in a log or an answer.
        what = type(error).__name__
        name = webhook.registration.name
        logger.error("webhook %s: bug at %s/%s: %s", name, review.namespace, review.name, _places(error))
        return refused(500, f"panic: {what} [recovered]")


def _places(error: BaseException) -> str:
    """The error's type and where it comes from, without its text."""
    places, at = [], error.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        places.append(f"{code.co_filename.rpartition('/')[2]}:{at.tb_lineno} {code.co_name}")
        at = at.tb_next
    return f"{type(error).__name__} in {' > '.join(places)}"
