"""All webhooks."""

from __future__ import annotations

from webhooks.admission import clouds, gardenobjects
from webhooks.mutators import cloudsecrets, cloudservices, controlplane, seedobjects, shootobjects
from webhooks.review import Webhook

_ALL = (
    controlplane.CONTROL_PLANE,
    gardenobjects.MUTATOR,
    gardenobjects.SECRETS,
    gardenobjects.VALIDATOR,
    seedobjects.DNS_CONFIG,
    seedobjects.NETWORK_POLICY,
    seedobjects.PROMETHEUS,
    seedobjects.ROLLOUT_SPEEDUP,
    shootobjects.CALICO,
    shootobjects.INSTANCE,
    shootobjects.KUBE_PROXY,
    shootobjects.NODE,
    *clouds.WEBHOOKS,
    *cloudsecrets.WEBHOOKS,
    *cloudservices.WEBHOOKS,
)

WEBHOOKS: dict[str, Webhook] = {webhook.registration.name: webhook for webhook in _ALL}
"""By name."""
