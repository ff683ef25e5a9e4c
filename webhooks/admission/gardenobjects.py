"""Objects of the garden: profiles, Shoots, their Secrets, and WorkloadIdentities."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network

from webhooks import clustershoots
from webhooks.admission import profiles
from webhooks.review import OLD_OBJECT, Context, Denied, Review, Undecodable, Webhook, about
from webhooks.shapes import part, put
from windowbox.models import addresses, fielderrors
from windowbox.models import webhooks as registrations
from windowbox.models.addresses import Network
from windowbox.models.objects import Json, Object, from_base64

_MARK = "extensions.gardener.cloud/processed-by"
_NODES = "spec.networking.nodes"
_OF_MACHINES: dict[int, Network] = {4: IPv4Network("10.0.0.0/16"), 6: IPv6Network("fd00:10:1:100::/56")}
_OF_HOST: dict[int, Network] = {4: IPv4Network("172.18.0.0/24"), 6: IPv6Network("fd00:10::/64")}
"""Where Gardener does not create machines, nodes are containers in the host's network."""
_REVIEWED = registrations.SECRETS_VALIDATOR.objects["matchLabels"]
"""The labels of Secrets that are reviewed."""


def mark_or_merge(review: Review, _: Context) -> Json | None:
    """The Shoot with an annotation, or the NamespacedCloudProfile with merged images in its status."""
    match review.kind:
        case "Shoot":
            # Gardener's tests see by the annotation that the webhook is active.
            if _MARK in part(review.object, "metadata", "annotations"):
                return None
            return put(review.object, "admission-webhook-local-provider", "metadata", "annotations", _MARK)
        case "NamespacedCloudProfile":
            metadata, spec, status = (part(review.object, field) for field in ("metadata", "spec", "status"))
            in_status = part(status, "cloudProfileSpec").get("providerConfig")
            # Until both are equal, the status still belongs to an older spec.
            if metadata.get("generation") != status.get("observedGeneration"):
                return None
            if spec.get("providerConfig") is None or in_status is None:
                return None
            return put(
                review.object, profiles.merged(review.object), "status", "cloudProfileSpec", "providerConfig"
            )
        case _:
            return None


def validate(review: Review, context: Context) -> None:
    """Deny with all errors of the object at once."""
    # CloudProfiles are checked even under deletion, as Gardener does.
    match review.kind:
        case "CloudProfile":
            errors = profiles.cloud_profile_errors(review.object)
        case "NamespacedCloudProfile" if not review.deleting:
            errors = profiles.namespaced_profile_errors(review.object, context)
        case "Shoot" if not review.deleting:
            errors = shoot_errors(review.object, review.old_object)
        case "WorkloadIdentity":
            given = part(review.object, "spec", "targetSystem").get("providerConfig")
            errors = [] if given is None else ["target system provider config must be empty"]
        case _:
            errors = []
    if errors:
        raise Denied(fielderrors.joined(errors))


def shoot_errors(shoot: Json, old: Json | None) -> list[str]:
    """The errors of a new or changed range of nodes."""
    nodes = part(shoot, "spec", "networking").get("nodes")
    if not clustershoots.workers(shoot):
        return []
    if old is not None:
        with about(OLD_OBJECT):
            stored = part(old, "spec", "networking").get("nodes")
        if stored == nodes:
            return []
    if nodes is None:
        return [fielderrors.required(_NODES, "nodes CIDR must not be empty")]
    network = addresses.prefix(nodes) if isinstance(nodes, str) else None
    if network is None:
        return [fielderrors.invalid(_NODES, nodes, "nodes CIDR must be a valid CIDR")]
    unmanaged = clustershoots.self_hosted(shoot) and not clustershoots.managed_infrastructure(shoot)
    allowed = (_OF_HOST if unmanaged else _OF_MACHINES)[network.version]
    if network.prefixlen >= allowed.prefixlen and network.network_address in allowed:
        return []
    return [fielderrors.invalid(_NODES, nodes, f"nodes CIDR must be a subnet of {allowed}")]


def validate_secret(review: Review, context: Context) -> None:
    """Deny new, changed or newly labelled credentials of a Shoot without a kubeconfig."""
    data = _secret_data(review.object)
    if review.old_object is not None:
        with about(OLD_OBJECT):
            stored = _secret_data(review.old_object)
        # What was stored without the label has not been reviewed.
        newly_labelled = _is_labelled(review.object) and not _is_labelled(review.old_object)
        if stored == data and not newly_labelled:
            return
    if context.settings.empty_secrets:
        if data:
            raise Denied("secret data should be empty")
    elif not data.get("kubeconfig"):
        raise Denied("kubeconfig is missing")


def _is_labelled(secret: Json | None) -> bool:
    return bool(_REVIEWED.items() <= Object(secret or {}).labels.items())


def _secret_data(secret: Json) -> Mapping[str, bytes]:
    """The decoded values. No message may show them."""
    data = {}
    for name, value in part(secret, "data").items():
        try:
            if not isinstance(value, str | None):
                raise ValueError
            data[name] = from_base64(value or "")
        except ValueError:
            raise Undecodable(f"data.{name:.253} is not base64 of anything") from None
    return data


MUTATOR = Webhook(registrations.MUTATOR, mark_or_merge)
VALIDATOR = Webhook(registrations.VALIDATOR, validate, skip_deleting=False)
SECRETS = Webhook(registrations.SECRETS_VALIDATOR, validate_secret, skip_deleting=False)
