"""Domains of Alibaba Cloud DNS."""

from __future__ import annotations

from clouds.frame import inventory
from clouds.frame.services.dns import Dns

DNS = Dns(
    zone_id=lambda name: inventory.digest("domain", name)[:32],
    form="{name}:{id}",
    keys={"ACCESS_KEY_ID": "accessKeyID", "ACCESS_KEY_SECRET": "accessKeySecret"},
)
