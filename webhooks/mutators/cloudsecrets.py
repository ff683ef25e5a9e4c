"""The Secret `cloudprovider` of a Shoot: what programs of its cloud read besides the user's credentials."""

from __future__ import annotations

import base64
from functools import partial

from clouds import table
from webhooks import clustershoots
from webhooks.review import Context, Denied, Review, Undecodable, Webhook
from webhooks.shapes import name, namespace, part, put
from windowbox.errors import Malformed
from windowbox.models import webhooks as registrations
from windowbox.models.clouds import WITH_PROVIDER_SECRETS
from windowbox.models.objects import Json, from_base64

_NAME = "cloudprovider"


def change(type_: str, review: Review, context: Context) -> Json | None:
    """The Secret with what its cloud adds and removes."""
    if name(review) != _NAME:
        return None
    cloud, given = table.cloud(type_), part(review.object, "data")
    assert cloud.provider_secret  # the clouds with this webhook have it
    try:
        data = {key: from_base64(value or "") for key, value in given.items()}
    except (TypeError, ValueError, AttributeError) as error:
        raise Undecodable("data has a value that is not base64") from error

    def cluster() -> Json:
        return context.looked_up(clustershoots.lookup(namespace(review)), "failed reading Cluster: ")

    try:
        changes = cloud.provider_secret(data, cluster)
    except Malformed as error:
        raise Denied(str(error)) from error
    kept = {key: value for key, value in given.items() if key not in changes}
    added = {key: base64.b64encode(value).decode() for key, value in changes.items() if value is not None}
    return put(review.object, kept | added, "data")


WEBHOOKS = [
    Webhook(registration, partial(change, registration.cloud))
    for registration in map(registrations.provider_secret_of, WITH_PROVIDER_SECRETS)
]
