"""Objects in Shoots of clouds: Services, and the configuration of an ingress controller."""

from __future__ import annotations

from functools import partial

from clouds import table
from webhooks.review import Context, Review, Webhook
from webhooks.shapes import part, put
from windowbox.models import webhooks as registrations
from windowbox.models.objects import Json


def change_service(cloud: str, review: Review, _: Context) -> Json:
    """The Service as the cloud's extension changes it in Shoots."""
    part(review.object, "metadata", "annotations")
    part(review.object, "spec")
    of = table.balancers(cloud)
    return of.admit(review.object, review.old_object) if of else review.object


def expect_header(review: Review, _: Context) -> Json:
    """The ConfigMap of an nginx that reads PROXY headers."""
    part(review.object, "data")
    return put(review.object, "true", "data", "use-proxy-protocol")


WEBHOOKS = [
    Webhook(registrations.ALICLOUD_SERVICES, partial(change_service, "alicloud")),
    Webhook(registrations.AWS_INGRESS, expect_header),
    Webhook(registrations.AWS_SERVICES, partial(change_service, "aws")),
]
