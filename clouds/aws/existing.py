"""What may exist in an account of AWS before Shoots do."""

from __future__ import annotations

from clouds.frame.operator.existing import Form, address, cidr, text, truth

EXISTING: dict[str, dict[str, Form]] = {
    "vpc": {
        "cidr": cidr,
        "ipv6CidrBlock": cidr,
        "enableDnsSupport": truth,
        "enableDnsHostnames": truth,
        "internetGateway": truth,
        "egressOnlyInternetGateway": truth,
        "domainName": text,
    },
    "elastic-ip": {"address": address},
}
