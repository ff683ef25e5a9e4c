"""Objects of other types of provider than `local`. The rules of a cloud are loaded with its first review."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from clouds import table
from clouds.frame import admission
from clouds.frame.cloud import Cloud, Lookup
from webhooks import review as reviews
from webhooks.review import Context, Denied, Review, Webhook
from webhooks.shapes import put
from windowbox.errors import Malformed
from windowbox.models import fielderrors
from windowbox.models import webhooks as registrations
from windowbox.models.objects import Json
from windowbox.models.refs import (
    CLOUD_PROFILES,
    CREDENTIALS_BINDINGS,
    NAMESPACED_CLOUD_PROFILES,
    SECRET_BINDINGS,
    SECRETS,
)
from windowbox.models.webhooks import Registration

_LONGEST_NAME = 253
_READ = {
    one.kind: one
    for one in (CLOUD_PROFILES, CREDENTIALS_BINDINGS, NAMESPACED_CLOUD_PROFILES, SECRET_BINDINGS, SECRETS)
}
"""Objects that reviews read besides their own. Secrets come from the garden alone, and go nowhere."""


def validate(type_: str, review: Review, context: Context) -> None:
    """Deny with all problems of the object at once, as far as its cloud looks."""
    about, find = review.kind.lower(), _finding(context)
    found = admission.problems(table.cloud(type_), about, review.object, review.old_object, find)
    if found:
        raise Denied(fielderrors.joined(fielderrors.first(map(str, found))))


def change(type_: str, review: Review, context: Context) -> Json | None:
    """The Shoot as its cloud wants it, or the NamespacedCloudProfile with a merged config in its status."""
    cloud = table.cloud(type_)
    try:
        if review.kind == "Shoot":
            return admission.mutated(cloud, review.object, review.old_object, _finding(context))
        return _with_merged_status(cloud, review.object)
    except Malformed as error:
        raise Denied(str(error)) from error


def _with_merged_status(cloud: Cloud, profile: Json) -> Json | None:
    config = admission.merged_config(cloud, profile)
    return config and put(profile, config, "status", "cloudProfileSpec", "providerConfig")


def _finding(context: Context) -> Lookup:
    def find(kind: str, namespace: str, name: str) -> Json | None:
        resource = _READ.get(kind)
        if resource is None or max(len(namespace), len(name)) > _LONGEST_NAME:
            return None
        return context.find(reviews.Lookup(resource, namespace, name))

    return find


def _webhook(registration: Registration, act: Callable[[str, Review, Context], Json | None]) -> Webhook:
    # Always in a thread: profiles that are looked up can be large, whatever the size of the request is.
    return Webhook(registration, partial(act, registration.cloud), big=0)


WEBHOOKS = [
    _webhook(make(cloud), act)
    for cloud in registrations.CLOUDS
    for make, act in (
        (registrations.mutator_of, change),
        (registrations.secrets_validator_of, validate),
        (registrations.validator_of, validate),
    )
]
