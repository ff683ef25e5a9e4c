"""All webhooks."""

from __future__ import annotations

from webhooks import (
    calico,
    controlplane,
    dnsconfig,
    networkpolicy,
    node,
    prometheus,
    rollout_speedup,
    shoot,
)
from webhooks.admission import mutator, secrets, validator
from webhooks.webhook import Webhook

_MODULES = (
    calico,
    controlplane,
    dnsconfig,
    mutator,
    networkpolicy,
    node,
    prometheus,
    rollout_speedup,
    secrets,
    shoot,
    validator,
)

WEBHOOKS: dict[str, Webhook] = {module.WEBHOOK.registration.name: module.WEBHOOK for module in _MODULES}
"""By name."""
