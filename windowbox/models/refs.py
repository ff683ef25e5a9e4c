"""References: which object, of which kind, in which cluster."""

from __future__ import annotations

import re
from typing import NamedTuple

from pydantic import BaseModel

from windowbox.errors import Malformed

_NO_SEGMENT = re.compile(r"\.\.?|.*[/%?#\\\x00-\x20].*", re.DOTALL)
"""Segments that would lead a path to another object."""


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
    named: str = ""
    """Only objects of this name are watched."""
    short_names: tuple[str, ...] = ()
    """As kubectl takes them."""
    watched_as: str = ""
    """In place of the plural in the id, where other objects of the same kind are watched, too."""

    @property
    def id(self) -> str:
        """`dnsrecords.extensions.gardener.cloud`, as kubectl takes it; plurals alone are ambiguous."""
        name = self.watched_as or self.plural
        return f"{name}.{self.group}" if self.group else name

    @property
    def names(self) -> frozenset[str]:
        """The names that a person may use for the kind, in lower case."""
        usual = () if self.watched_as else (self.plural, self.kind.lower(), *self.short_names)
        return frozenset((self.id, *usual))

    def path(self, namespace: str = "", name: str = "") -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        where = namespace or self.within
        for segment in (where, name):
            if _NO_SEGMENT.fullmatch(segment):
                raise Malformed(f"{segment!r:.80} cannot be a name in {self.id}: correct the reference to it")
        within = f"/namespaces/{where}" if self.namespaced and where else ""
        return f"{root}{within}/{self.plural}" + (f"/{name}" if name else "")


def _extension(plural: str, kind: str, *short_names: str, namespaced: bool = True) -> Resource:
    group = "extensions.gardener.cloud"
    return Resource(group, "v1alpha1", plural, kind, namespaced=namespaced, short_names=short_names)


BACKUP_BUCKETS = _extension("backupbuckets", "BackupBucket", "bb", namespaced=False)
BACKUP_ENTRIES = _extension("backupentries", "BackupEntry", "be", namespaced=False)
BASTIONS = _extension("bastions", "Bastion")
CLUSTERS = _extension("clusters", "Cluster", namespaced=False)
CONTAINER_RUNTIMES = _extension("containerruntimes", "ContainerRuntime")
CONTROL_PLANES = _extension("controlplanes", "ControlPlane", "cp")
DNSRECORDS = _extension("dnsrecords", "DNSRecord", "dns")
EXPOSURES = _extension("selfhostedshootexposures", "SelfHostedShootExposure", "exp")
EXTENSIONS = _extension("extensions", "Extension", "ext")
INFRASTRUCTURES = _extension("infrastructures", "Infrastructure", "infra")
NETWORKS = _extension("networks", "Network")
OPERATING_SYSTEM_CONFIGS = _extension("operatingsystemconfigs", "OperatingSystemConfig", "osc")
WORKERS = _extension("workers", "Worker")

ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
CLOUD_PROFILES = Resource("core.gardener.cloud", "v1beta1", "cloudprofiles", "CloudProfile", namespaced=False)
CERTIFICATE_REQUESTS = Resource(
    "certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", namespaced=False
)
VOLUME_ATTACHMENTS = Resource(
    "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False
)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", short_names=("deploy",))
API_SERVER, MACHINE_CONTROLLER_MANAGER = "kube-apiserver", "machine-controller-manager"
PLANE_DEPLOYMENTS = DEPLOYMENTS._replace(
    selector="app=kubernetes,role in (apiserver,machine-controller-manager)"
)
"""Those with these names in the control planes of Shoots."""
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
INGRESSES = Resource("networking.k8s.io", "v1", "ingresses", "Ingress", short_names=("ing",))
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False, short_names=("ns",))
NETWORK_POLICIES = Resource(
    "networking.k8s.io",
    "v1",
    "networkpolicies",
    "NetworkPolicy",
    selector="app.kubernetes.io/managed-by=provider-local",
    short_names=("netpol",),
)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False, short_names=("no",))
PODS = Resource("", "v1", "pods", "Pod", selector="app in (machine,bastion)", short_names=("po",))
SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICES = Resource("", "v1", "services", "Service", short_names=("svc",))

# Of the garden.
CREDENTIALS_BINDINGS = Resource(
    "security.gardener.cloud", "v1alpha1", "credentialsbindings", "CredentialsBinding"
)
NAMESPACED_CLOUD_PROFILES = Resource(
    "core.gardener.cloud", "v1beta1", "namespacedcloudprofiles", "NamespacedCloudProfile"
)
SECRET_BINDINGS = Resource("core.gardener.cloud", "v1beta1", "secretbindings", "SecretBinding")
SEEDS = Resource("core.gardener.cloud", "v1beta1", "seeds", "Seed", namespaced=False)
SHOOTS = Resource("core.gardener.cloud", "v1beta1", "shoots", "Shoot")


def _machine(plural: str, kind: str, short_name: str) -> Resource:
    return Resource("machine.sapcloud.io", "v1alpha1", plural, kind, short_names=(short_name,))


MACHINE_CLASSES = _machine("machineclasses", "MachineClass", "mcc")
MACHINE_DEPLOYMENTS = _machine("machinedeployments", "MachineDeployment", "mcd")
MACHINE_SETS = _machine("machinesets", "MachineSet", "mcs")
MACHINES = _machine("machines", "Machine", "mc")

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
HEARTBEATS = LEASES._replace(named="gardener-extension-heartbeat")
MACHINE_LEASES = LEASES._replace(
    named="machine-controller-manager",
    # Those that Gardener's program has made are renewed every two seconds, and say nothing about windowbox.
    selector="app.kubernetes.io/managed-by=windowbox",
    watched_as="machineleases",
)
"""They name the provider of a namespace's machines. Only those that windowbox has held are watched."""
IP_POOLS = Resource("crd.projectcalico.org", "v1", "ippools", "IPPool", namespaced=False)
MANAGED_RESOURCES = Resource(
    "resources.gardener.cloud", "v1alpha1", "managedresources", "ManagedResource", short_names=("mr",)
)


class ObjectRef(NamedTuple):
    """One object of one cluster. Names may be reused; uids distinguish the objects."""

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

_PROVIDER = re.compile(r"provider-[0-9a-f]{32}")


def provider_cluster(digest: str) -> str:
    """The id of a member that is a provider cluster."""
    return f"provider-{digest[:32]}"


def is_provider_cluster(cluster: str) -> bool:
    """Whether it is a provider cluster: a tenant may control it, and only our own objects there count."""
    return _PROVIDER.fullmatch(cluster) is not None


class SecretKey(BaseModel, frozen=True):
    """A place in a Secret of the runtime cluster. Its data never travels on the bus."""

    namespace: str
    name: str
    key: str = "kubeconfig"
