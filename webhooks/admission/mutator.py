"""The webhook `mutator`: annotates Shoots, and merges images in the status of NamespacedCloudProfiles."""

from __future__ import annotations

from webhooks.admission import profiles
from webhooks.review import Context, Review, Webhook
from webhooks.shapes import part, put
from windowbox.models import webhooks as registrations
from windowbox.models.objects import Json

_MARK = "extensions.gardener.cloud/processed-by"
_IN_STATUS = ("status", "cloudProfileSpec", "providerConfig")


def change_garden_object(review: Review, _: Context) -> Json | None:
    match review.kind:
        case "Shoot":
            # Gardener's tests see by the annotation that the webhook is active.
            if _MARK in part(review.object, "metadata", "annotations"):
                return None
            return put(review.object, "admission-webhook-local-provider", "metadata", "annotations", _MARK)
        case "NamespacedCloudProfile":
            metadata, spec, status = (part(review.object, field) for field in ("metadata", "spec", "status"))
            in_status = part(status, "cloudProfileSpec").get("providerConfig")
            # Gardener first copies the parent into the status, and updates the generation with it.
            if metadata.get("generation") != status.get("observedGeneration"):
                return None
            if spec.get("providerConfig") is None or in_status is None:
                return None
            return put(review.object, profiles.merged(review.object), *_IN_STATUS)
        case _:
            return None


MUTATOR = Webhook(registrations.MUTATOR, change_garden_object)
