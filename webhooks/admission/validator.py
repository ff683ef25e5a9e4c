"""CloudProfiles, NamespacedCloudProfiles, Shoots and WorkloadIdentities of this provider."""

from __future__ import annotations

from webhooks.admission import cloudprofiles, namespacedprofiles, shoots
from webhooks.review import Context, Denied, Lookup, Review
from webhooks.shapes import part
from webhooks.webhook import Webhook
from windowbox.models import fielderrors
from windowbox.models.objects import Object
from windowbox.models.webhooks import VALIDATOR


def lookup(review: Review) -> Lookup | None:
    """The parent of a NamespacedCloudProfile."""
    if review.kind != "NamespacedCloudProfile" or review.deleting:
        return None
    return namespacedprofiles.parent(Object(review.object))


def act(review: Review, context: Context) -> None:
    # An invalid CloudProfile is refused even while it is being deleted.
    match review.kind:
        case "CloudProfile":
            errors = cloudprofiles.errors(review.object)
        case "NamespacedCloudProfile" if not review.deleting:
            errors = namespacedprofiles.errors(review.object, context)
        case "Shoot" if not review.deleting:
            errors = shoots.errors(review.object, review.old_object)
        case "WorkloadIdentity":
            errors = _of_identity(review)
        case _:
            errors = []
    if errors:
        raise Denied(fielderrors.joined(errors))


def _of_identity(review: Review) -> list[str]:
    given = part(review.object, "spec", "targetSystem").get("providerConfig")
    return [] if given is None else ["target system provider config must be empty"]


WEBHOOK = Webhook(VALIDATOR, act, lookup, skip_deleting=False)
