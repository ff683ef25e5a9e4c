"""What may exist in a tenant of OpenStack before Shoots do. Floating pools have names, all others ids."""

from __future__ import annotations

from clouds.frame.operator.existing import Form, addresses, text

EXISTING: dict[str, dict[str, Form]] = {
    "floating-pool": {},
    "network": {"name": text},
    "router": {"externalFixedIPs": addresses},
}
