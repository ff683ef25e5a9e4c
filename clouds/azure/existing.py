"""What may exist in a subscription of Azure before Shoots do. Ids are GROUP/NAME, of groups their name."""

from __future__ import annotations

from clouds.frame.operator.existing import address, cidr, text

EXISTING = {
    "resource-group": {"location": text},
    "vnet": {"location": text, "cidr": cidr},
    "identity": {"clientID": text},
    "public-ip": {"location": text, "zone": text, "sku": text, "address": address},
}
