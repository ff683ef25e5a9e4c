"""Objects of other types of provider than `local`.

What clouds share, and the rules of each, are imported with the first review: most processes have none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from clouds import table
from webhooks import review as reviews
from webhooks.review import Context, Denied, Review, Webhook
from webhooks.shapes import put
from windowbox.errors import Malformed
from windowbox.models import fielderrors
from windowbox.models import webhooks as registrations
from windowbox.models.clouds import IN_GARDENS
from windowbox.models.objects import Json
from windowbox.models.refs import (
    CLOUD_PROFILES,
    CREDENTIALS_BINDINGS,
    NAMESPACED_CLOUD_PROFILES,
    SECRET_BINDINGS,
    SECRETS,
)
from windowbox.models.webhooks import Registration

if TYPE_CHECKING:
    from clouds.frame.cloud import Lookup

_LONGEST_NAME = 253
_READ = {
    one.kind: one
    for one in (CLOUD_PROFILES, CREDENTIALS_BINDINGS, NAMESPACED_CLOUD_PROFILES, SECRET_BINDINGS, SECRETS)
}
"""Objects that reviews read besides their own. Secrets come from the garden alone, and go nowhere."""


def validate(type_: str, review: Review, context: Context) -> None:
    """Deny with all problems of the object at once, as far as its cloud looks."""
    from clouds.frame import admission

    about, find = review.kind.lower(), _finding(context)
    found = admission.problems(table.cloud(type_), about, review.object, review.old_object, find)
    if found:
        raise Denied(fielderrors.joined(fielderrors.first(map(str, found))))


def change(type_: str, review: Review, context: Context) -> Json | None:
    """The Shoot as its cloud wants it, or the NamespacedCloudProfile with a merged config in its status."""
    from clouds.frame import admission

    cloud = table.cloud(type_)
    try:
        if review.kind == "Shoot":
            return admission.mutated(cloud, review.object, review.old_object, _finding(context))
        config = admission.merged_config(cloud, review.object)
        return config and put(review.object, config, "status", "cloudProfileSpec", "providerConfig")
    except Malformed as error:
        raise Denied(str(error)) from error


def _finding(context: Context) -> Lookup:
    def find(kind: str, namespace: str, name: str) -> Json | None:
        resource = _READ.get(kind)
        if resource is None or max(len(namespace), len(name)) > _LONGEST_NAME:
            return None
        return context.find(reviews.Lookup(resource, namespace, name))

    return find


def _webhook(registration: Registration, act: Callable[[str, Review, Context], Json | None]) -> Webhook:
    return Webhook(registration, partial(act, registration.cloud), reads_large=True)


WEBHOOKS = [
    _webhook(make(cloud), act)
    for cloud in IN_GARDENS
    for make, act in (
        (registrations.mutator_of, change),
        (registrations.secrets_validator_of, validate),
        (registrations.validator_of, validate),
    )
]
