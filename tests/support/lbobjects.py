"""Services, nodes and slices as the API gives them, and as it never would."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from windowbox.models.objects import Object

UID = "d9607e19-f88f-11e6-a518-42010a800195"

HTTP: dict[str, Any] = {"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080, "targetPort": 8080}
DNS: dict[str, Any] = {"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053, "targetPort": "dns"}


def service(
    *,
    annotations: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> Object:
    """A Service of type LoadBalancer with one port; fields given as None are absent."""
    meta = {"name": "web", "namespace": "default", "uid": UID} | (metadata or {})
    if annotations is not None:
        meta["annotations"] = annotations
    wanted = {"type": "LoadBalancer", "ports": [HTTP], "ipFamilies": ["IPv4"]} | spec
    kept = {field: value for field, value in wanted.items() if value is not None}
    return Object({"metadata": meta, "spec": kept, "status": status or {}})


def node(
    name: str = "node-1",
    *addresses: str,
    labels: dict[str, Any] | None = None,
    taints: Any = None,
    deleting: bool = False,
    **spec: Any,
) -> Object:
    meta: dict[str, Any] = {"name": name, "labels": labels or {}}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    listed = [{"type": "InternalIP", "address": address} for address in addresses or ("10.0.0.1",)]
    return Object(
        {
            "metadata": meta,
            "spec": spec | ({"taints": taints} if taints is not None else {}),
            "status": {"addresses": [{"type": "Hostname", "address": name}, *listed]},
        }
    )


def pods(*addresses: str, ready: bool | None = True, family: str = "IPv4", ports: Any = None) -> Object:
    """An EndpointSlice, of Pods called after the ends of their addresses."""
    named = [{"name": "http", "port": 8080, "protocol": "TCP"}] if ports is None else ports
    return Object(
        {
            "addressType": family,
            "ports": named,
            "endpoints": [
                {
                    "addresses": [address],
                    "conditions": {} if ready is None else {"ready": ready},
                    "targetRef": {"kind": "Pod", "name": f"web-{address[-1]}"},
                }
                for address in addresses
            ],
        }
    )


def brief(value: object) -> str:
    """A test's id for any value."""
    return repr(value)[:24]


_TEXTS = st.sampled_from(
    ["", "TCP", "UDP", "LoadBalancer", "Local", "10.0.0.0/8", "10.0.0.1", "fd00::1", "::/0", "v1", "90s", "5"]
)
_NUMBERS = st.integers(-2, 70000) | st.sampled_from([2**63, 0, 80])
_ATOMS = st.none() | st.booleans() | _NUMBERS | st.floats(allow_nan=False) | _TEXTS | st.text(max_size=8)
_FIELDS = st.sampled_from(
    [
        *("type", "ports", "port", "protocol", "name", "nodePort", "targetPort", "ipFamilies", "clusterIP"),
        *("loadBalancerClass", "loadBalancerIP", "loadBalancerSourceRanges", "healthCheckNodePort", "uid"),
        *("externalTrafficPolicy", "sessionAffinity", "annotations", "labels", "finalizers", "taints", "key"),
        *("addresses", "address", "ingress", "ip", "loadBalancer", "conditions", "generation", "status"),
        *("loadbalancer.windowbox/address", "loadbalancer.windowbox/share"),
        *("loadbalancer.windowbox/proxy-protocol", "loadbalancer.windowbox/idle-timeout"),
        *("loadbalancer.windowbox/connection-limit", "endpoints", "ready", "targetRef", "addressType"),
        *("service.beta.kubernetes.io/load-balancer-source-ranges", "clusterIPs", "lastTransitionTime"),
        "node.kubernetes.io/exclude-from-external-load-balancers",
    ]
)
_JSON = st.recursive(
    _ATOMS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_FIELDS, inner, max_size=4)
)
_PARTS = _JSON | st.dictionaries(_FIELDS, _JSON, max_size=8)

nonsense = st.builds(
    Object,
    st.dictionaries(st.sampled_from(["metadata", "spec", "status", "ports", "endpoints"]), _PARTS)
    | st.fixed_dictionaries({"metadata": _PARTS, "spec": _PARTS, "status": _PARTS}),
)
"""Objects that no API server would let pass."""
