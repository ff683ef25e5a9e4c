"""The Shoot of a Cluster object. Rules C-2 to C-9 and T-8 of the contract."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from windowbox.errors import Malformed, TransientError
from windowbox.models.extensions import FORCE_DELETION, ROLE
from windowbox.models.objects import Object, mapping, mappings

_TECHNICAL_ID = re.compile(r"[a-z0-9]([-a-z0-9]{0,55}[a-z0-9])?")
"""With the prefix `infra-` it is still the name of a namespace."""
MOST_NETWORKS = 32
"""CIDRs of nodes, of Pods or of Services of one Shoot. Each is compared with all others, and recorded."""
_TRUE = ("1", "t", "T", "TRUE", "true", "True")


@dataclass(frozen=True, slots=True)
class ShootFacts:
    """The facts about a Shoot that runs of extension objects use."""

    failed: bool = False
    """No run until its owner retries."""
    force_deletion: bool = False
    hibernation_enabled: bool = False
    hibernated: bool = False
    self_hosted: bool = False
    managed_infrastructure: bool = False
    technical_id: str = ""
    ip_families: tuple[str, ...] = ("IPv4",)
    nodes: tuple[str, ...] = ()
    """CIDRs, as the Shoot's spec has it and, after that, as its status has them."""
    pods: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    test_force_delete: bool = False
    """Annotation of Gardener's own tests: a deletion leaves objects behind."""

    @classmethod
    def from_record(cls, facts: Mapping[str, Any]) -> Self:
        """The facts from a run's record, in which tuples are lists."""
        known: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in facts.items()}
        return cls(**known)


def facts(cluster: Object) -> ShootFacts:
    """The facts about the Shoot of `cluster`. Missing fields count as unset."""
    shoot = Object(mapping(cluster.spec.get("shoot")))
    hibernation_enabled = mapping(shoot.spec.get("hibernation")).get("enabled") is True
    networking, assigned = mapping(shoot.spec.get("networking")), mapping(shoot.status.get("networking"))

    def cidrs(name: str) -> tuple[str, ...]:
        """The requested CIDRs, and those assigned in addition, each once; of too many, one too many."""
        found = dict.fromkeys((*_as_texts(networking.get(name)), *_as_texts(assigned.get(name))))
        return tuple(found)[: MOST_NETWORKS + 1]

    return ShootFacts(
        failed=shoot.last_operation.get("state") == "Failed",
        force_deletion=shoot.annotations.get(FORCE_DELETION) in _TRUE,
        hibernation_enabled=hibernation_enabled,
        hibernated=hibernation_enabled and shoot.status.get("isHibernated") is True,
        self_hosted=any(
            worker.get("controlPlane") is not None
            for worker in mappings(mapping(shoot.spec.get("provider")).get("workers"))
        ),
        # Even an empty name counts, as for Gardener.
        managed_infrastructure=any(
            shoot.spec.get(name) is not None for name in ("credentialsBindingName", "secretBindingName")
        ),
        technical_id=str(shoot.status.get("technicalID") or ""),
        ip_families=_as_texts(networking.get("ipFamilies")) or ("IPv4",),
        nodes=cidrs("nodes"),
        pods=cidrs("pods"),
        services=cidrs("services"),
        test_force_delete=shoot.annotations.get("test-force-delete") == "true",
    )


def check_technical_id(shoot: ShootFacts, cluster: str) -> None:
    """Raise an error unless namespaces can be named after the Cluster's Shoot."""
    if not shoot.technical_id:
        raise TransientError(f"the Cluster {cluster} does not tell the technical id of its Shoot yet")
    if not _TECHNICAL_ID.fullmatch(shoot.technical_id):
        raise Malformed(
            f"status.technicalID of the Shoot in the Cluster {cluster} is {shoot.technical_id!r:.80}: "
            "make it at most 57 lower-case letters, digits and hyphens, as in names of namespaces"
        )


def is_shoot_namespace(labels: Mapping[str, Any]) -> bool:
    return labels.get(ROLE) == "shoot"


class Blocked(StrEnum):
    """Why a run has to wait for the object's Shoot."""

    FAILED = "its Shoot has failed; the owner's retry brings it back"
    UNKNOWN = "its Cluster is not there yet"


def blocked(
    namespace: str, labels: Mapping[str, Any] | None, shoot: ShootFacts | None, required: bool = False
) -> Blocked | None:
    """Why runs in `namespace` have to wait, if they have to.

    Kinds that need a Shoot (`required`) wait for it in any namespace: control planes of self-hosted Shoots
    are in kube-system. `labels` is None if the namespace could not be read, which blocks no other kind.
    """
    if required:
        return Blocked.UNKNOWN if shoot is None else Blocked.FAILED if shoot.failed else None
    if namespace == "garden" or labels is None or not is_shoot_namespace(labels):
        return None
    if shoot is None:
        return Blocked.UNKNOWN
    return Blocked.FAILED if shoot.failed else None


def _as_texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,) if value else ()
    return tuple(str(one) for one in value) if isinstance(value, list) else ()
