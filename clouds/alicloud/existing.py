"""What may exist in an account of Alibaba Cloud before Shoots do."""

from __future__ import annotations

from clouds.frame.operator.existing import Form, address, cidr, names, truth

EXISTING: dict[str, dict[str, Form]] = {
    "vpc": {"cidr": cidr, "natGateway": truth},
    "eip": {"address": address},
    # The zones of a region, whose name is the id, with Enhanced NAT gateways.
    "natgw-zones": {"zones": names},
}
