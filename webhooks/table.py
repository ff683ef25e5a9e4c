"""All webhooks."""

from __future__ import annotations

from webhooks.admission import mutator, validator
from webhooks.mutators import controlplane, seedobjects, shootobjects
from webhooks.review import Webhook

_ALL = (
    controlplane.CONTROL_PLANE,
    mutator.MUTATOR,
    seedobjects.DNS_CONFIG,
    seedobjects.NETWORK_POLICY,
    seedobjects.PROMETHEUS,
    seedobjects.ROLLOUT_SPEEDUP,
    shootobjects.CALICO,
    shootobjects.KUBE_PROXY,
    shootobjects.NODE,
    validator.SECRETS,
    validator.VALIDATOR,
)

WEBHOOKS: dict[str, Webhook] = {webhook.registration.name: webhook for webhook in _ALL}
"""By name."""
