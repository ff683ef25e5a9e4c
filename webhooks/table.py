"""All webhooks."""

from __future__ import annotations

from webhooks import node

WEBHOOKS = {webhook.registration.name: webhook for webhook in (node.WEBHOOK,)}
"""By name."""
