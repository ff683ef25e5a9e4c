"""One generated Secret as it is found in a cluster, and the labels that describe it."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from windowbox.models.objects import Object, mapping

NAME = "name"
MANAGED_BY = "managed-by"
MANAGER = "secrets-manager"
IDENTITY = "manager-identity"
CONFIG = "checksum-of-config"
SIGNING = "checksum-of-signing-ca"
ROTATION = "last-rotation-initiation-time"
ISSUED = "issued-at-time"
VALID_UNTIL = "valid-until-time"
PERSIST = "persist"
BUNDLE_FOR = "bundle-for"
USE_DATA_FOR = "secrets-manager-use-data-for-name"

_LONGEST = 63
"""Characters of the value of a label."""


@dataclass(frozen=True)
class Stored:
    """A Secret of a manager identity."""

    name: str
    uid: str
    created: float
    """Unix time of its creation."""
    labels: Mapping[str, str]
    data: Mapping[str, bytes] = field(repr=False)
    deleting: bool = False

    @classmethod
    def of(cls, found: Object) -> Self:
        created = str(found.metadata.get("creationTimestamp") or "")
        # Data that is not base64 counts as missing, so that the Secret is generated again.
        decoded = {}
        for key, value in mapping(found.raw.get("data")).items():
            try:
                decoded[key] = base64.b64decode(value, validate=True)
            except (TypeError, binascii.Error, ValueError):
                continue
        return cls(
            name=found.name,
            uid=found.uid,
            created=datetime.fromisoformat(created).timestamp() if created else 0.0,
            labels={key: str(value) for key, value in found.labels.items()},
            data=decoded,
            deleting=found.deleting,
        )

    @property
    def config(self) -> str:
        """The name of the config that it was generated from."""
        return self.labels.get(NAME, "")

    @property
    def rotation(self) -> str:
        """When the rotation was initiated that it was generated for: unix time, or empty."""
        return self.labels.get(ROTATION, "")

    @property
    def issued(self) -> int | None:
        return _time(self.labels.get(ISSUED))

    @property
    def valid_until(self) -> int | None:
        return _time(self.labels.get(VALID_UNTIL))

    @property
    def age(self) -> tuple[int, float, int]:
        """Orders Secrets of one config from old to new.

        Restored Secrets were all created in the same second, so the rotation counts first.
        """
        return (_time(self.rotation) or 0, self.created, self.issued or 0)


def newest(found: Iterable[Stored]) -> Stored | None:
    return max(found, key=lambda one: one.age, default=None)


def data_checksum(data: Mapping[str, bytes]) -> str:
    """SHA-256 over the SHA-256 of each value, in the order of their keys."""
    digests = (hashlib.sha256(data[key]).hexdigest() for key in sorted(data))
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def authority_checksum(authority: Stored) -> str:
    """The label of what this CA signs."""
    return data_checksum(authority.data)[:_LONGEST]


def manifest(namespace: str, name: str, labels: Mapping[str, str], data: Mapping[str, bytes]) -> Any:
    """The Secret to create. It is immutable."""
    tls = {"tls.crt", "tls.key"} <= data.keys()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
        "type": "kubernetes.io/tls" if tls else "Opaque",
        "immutable": True,
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


def label_changes(found: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    """The merge patch that makes `found` exactly `wanted`; empty if it is."""
    changes: dict[str, str | None] = {name: None for name in found if name not in wanted}
    return changes | {name: value for name, value in wanted.items() if found.get(name) != value}


def _time(label: str | None) -> int | None:
    return int(label) if label and label.isdecimal() else None
