"""Secrets with the credentials of Shoots."""

from __future__ import annotations

from collections.abc import Mapping

from webhooks.review import OLD_OBJECT, Context, Denied, Review, Undecodable, about
from webhooks.shapes import part
from webhooks.webhook import Webhook
from windowbox.models.objects import Json, from_base64
from windowbox.models.webhooks import SECRETS_VALIDATOR


def act(review: Review, context: Context) -> None:
    data = _data(review.object)
    if review.old_object is not None:
        with about(OLD_OBJECT):
            stored = _data(review.old_object)
        if stored == data:
            return
    if context.settings.empty_secrets:
        if data:
            raise Denied("secret data should be empty")
    elif not data.get("kubeconfig"):
        raise Denied("kubeconfig is missing")


def _data(secret: Json) -> Mapping[str, bytes]:
    return {name: _decoded(name, value) for name, value in part(secret, "data").items()}


def _decoded(name: str, value: object) -> bytes:
    """The bytes of a value, which no message may show."""
    try:
        text = "" if value is None else value
        if isinstance(text, str):
            return from_base64(text)
    except ValueError:
        pass
    raise Undecodable(f"data.{name:.253} is not base64 of anything") from None


WEBHOOK = Webhook(SECRETS_VALIDATOR, act, skip_deleting=False)
