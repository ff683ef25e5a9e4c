"""Secrets with the credentials of Shoots."""

from __future__ import annotations

from webhooks.review import Context, Denied, Review
from webhooks.shapes import part
from webhooks.webhook import Webhook
from windowbox.models.webhooks import SECRETS_VALIDATOR


def act(review: Review, context: Context) -> None:
    data = part(review.object, "data")
    if review.old_object is not None and part(review.old_object, "data") == data:
        return
    if context.settings.empty_secrets:
        if data:
            raise Denied("secret data should be empty")
    elif not data.get("kubeconfig"):
        raise Denied("kubeconfig is missing")


WEBHOOK = Webhook(SECRETS_VALIDATOR, act, skip_deleting=False)
