"""What may exist in a project of GCP before Shoots do. Ids are names."""

from __future__ import annotations

from clouds.frame.operator.existing import Form, address, text

EXISTING: dict[str, dict[str, Form]] = {
    "vpc": {},
    "router": {"region": text},
    "address": {"region": text, "addressType": text, "address": address},
}
