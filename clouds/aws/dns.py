"""Hosted zones of Route 53."""

from __future__ import annotations

from clouds.frame import inventory
from clouds.frame.services.dns import Dns

DNS = Dns(
    zone_id=lambda name: inventory.made_id("Z0", name, digits=18).upper(),
    keys={"AWS_ACCESS_KEY_ID": "accessKeyID", "AWS_SECRET_ACCESS_KEY": "secretAccessKey"},
)
