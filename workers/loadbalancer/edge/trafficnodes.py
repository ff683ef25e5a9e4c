"""Nodes that take traffic, and their addresses. Rules LB-5-* of docs/contract-coverage.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from windowbox.models.loadbalancers import FAMILIES, Family, family
from windowbox.models.objects import Object
from workers.loadbalancer.spec import fields

EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
DRAINED = "ToBeDeletedByClusterAutoscaler"

_FALSE = frozenset({"0", "f", "F", "false", "False", "FALSE"})
"""The spellings of false in Go's strconv.ParseBool."""


@dataclass(frozen=True)
class Backend:
    """A node that gets traffic. Two are equal if their traffic goes to the same addresses."""

    name: str
    addresses: Mapping[Family, str] = field(hash=False)
    """Its first InternalIP of each family."""


@dataclass(frozen=True)
class Ineligible:
    """A node that gets no traffic."""

    name: str
    why: str
    """Follows the node's name in a sentence: `is being deleted`."""


_LABELLED = f"carries the label {EXCLUDED}"
_TAINTED = f"has the taint {DRAINED}"
_DELETED = "is being deleted"
_NOWHERE = "has no InternalIP"
WITHOUT: Mapping[Family, str] = {of: f"has no InternalIP of {of}" for of in FAMILIES}
REFUSED = "has an InternalIP that is refused"

_PLURAL = {
    _LABELLED: f"carry the label {EXCLUDED}",
    _TAINTED: f"have the taint {DRAINED}",
    _DELETED: "are being deleted",
    _NOWHERE: "have no InternalIP",
    **{why: why.replace("has", "have") for why in WITHOUT.values()},
    REFUSED: "have an InternalIP that is refused",
}
_REMEDY = {
    _LABELLED: "remove the label (kubectl label node NAME {label}-) from a node that shall take traffic",
    _TAINTED: "wait for new nodes, or remove the taint if the autoscaler has given up",
    _DELETED: "wait for new nodes",
    _NOWHERE: "wait for the kubelet to report one, or look at its option --node-ip",
    **dict.fromkeys(
        WITHOUT.values(), "choose another family in spec.ipFamilies, or give nodes such an address"
    ),
    REFUSED: "see the Event NodeAddressRefused",
}


def backend(node: Object) -> Backend | Ineligible:
    """Whether `node` gets traffic of Services.

    Its condition Ready does not matter: a node that is not ready may serve, and health checks decide.
    """
    if node.deleting:
        return Ineligible(node.name, _DELETED)
    # Any value but false excludes, even an invalid one.
    if EXCLUDED in node.labels and fields.text(node.labels[EXCLUDED]) not in _FALSE:
        return Ineligible(node.name, _LABELLED)
    if any(taint.get("key") == DRAINED for taint in fields.mappings(node.spec.get("taints"))):
        return Ineligible(node.name, _TAINTED)
    addresses: dict[Family, str] = {}
    for entry in fields.mappings(node.status.get("addresses")):
        address = fields.address(entry.get("address")) if entry.get("type") == "InternalIP" else None
        if address is not None:
            addresses.setdefault(family(address), address)
    if not addresses:
        return Ineligible(node.name, _NOWHERE)
    return Backend(node.name, addresses)


NO_PODS = "no Pod of the Service is ready that has an address of {family}"


def no_backends(nodes: Collection[Backend | Ineligible]) -> str:
    """Why none of `nodes` gets traffic, and the remedy."""

    def words(why: str, count: int) -> str:
        return why if count == 1 else _PLURAL[why]

    reasons = Counter(one.why for one in nodes if isinstance(one, Ineligible)).most_common()
    if not reasons:
        return "its nodes were not known a moment ago" if nodes else "the cluster has no nodes"
    why, count = reasons[0]
    remedy = _REMEDY[why].format(label=EXCLUDED)
    if count < len(nodes):
        parts = (f"{number} {words(reason, number)}" for reason, number in reasons)
        return f"of {len(nodes)} nodes, {fields.listed(parts, most=4)}: {remedy}"
    who = "the only node" if count == 1 else f"all {count} nodes"
    return f"{who} {words(why, count)}: {remedy}"
