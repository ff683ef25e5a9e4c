"""Names of things: which object, of which kind, in which cluster."""

from __future__ import annotations

from typing import NamedTuple


class Resource(NamedTuple):
    """A kind as the API's paths spell it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    selector: str = ""
    """Only objects with these labels are watched."""
    within: str = ""
    """Only objects of this namespace are watched."""

    @property
    def id(self) -> str:
        """`dnsrecords.extensions.gardener.cloud`, as kubectl takes it; the group alone tells kinds apart."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "") -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        where = namespace or self.within
        within = f"/namespaces/{where}" if self.namespaced and where else ""
        return f"{root}{within}/{self.plural}" + (f"/{name}" if name else "")


DNSRECORDS = Resource("extensions.gardener.cloud", "v1alpha1", "dnsrecords", "DNSRecord")
CLUSTERS = Resource("extensions.gardener.cloud", "v1alpha1", "clusters", "Cluster", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICES = Resource("", "v1", "services", "Service")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
MACHINE_PODS = Resource("", "v1", "pods", "Pod", selector="app=machine")

RESOURCES: dict[str, Resource] = {
    r.id: r
    for r in (
        DNSRECORDS, CLUSTERS, NAMESPACES, SECRETS, SERVICES, NODES, ENDPOINT_SLICES, MACHINE_PODS
    )
}  # fmt: skip
"""Every kind windowbox can watch, by its id."""


class ObjectRef(NamedTuple):
    """One object of one cluster. A name may be reused; the uid of what is found tells whether it was."""

    cluster: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind.split('.')[0]} {where}" + (
            f" ({self.cluster})" if self.cluster != RUNTIME else ""
        )


RUNTIME = "runtime"
"""The id of the cluster that windowbox serves; all others join and leave."""
