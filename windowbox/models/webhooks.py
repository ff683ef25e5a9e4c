"""The table of webhooks, and the requests for which API servers call them.

`webhooks/` implements them; this part is also for code that only writes the configurations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from windowbox.models.clouds import IN_GARDENS, WITH_PROVIDER_SECRETS, Cloud
from windowbox.models.machinekeys import CAPACITY

Selector = Mapping[str, Any]
"""A label selector, as the API takes it."""


class Target(StrEnum):
    """Whose API server calls a webhook."""

    SEED = "seed"
    SHOOT = "shoot"
    GARDEN = "garden"


@dataclass(frozen=True)
class Rule:
    """Creations and updates of one kind. `resource` may name a subresource; version `*` is any."""

    group: str
    version: str
    resource: str
    kind: str


@dataclass(frozen=True)
class Registration:
    """A webhook as its configuration describes it."""

    name: str
    target: Target
    rules: tuple[Rule, ...]
    namespaces: Selector = field(default_factory=dict)
    """Only requests in namespaces with these labels."""
    objects: Selector = field(default_factory=dict)
    """Only objects with these labels."""
    failure_policy: Literal["Fail", "Ignore"] | None = None
    """Whether requests fail while the webhook cannot be reached. None for the default of its target."""
    timeout: int = 10
    path: str = ""
    """Below the server's root; empty if it is the name."""
    validating: bool = False
    cloud: str = ""
    """The type of provider that it is for. Only where clouds.types lists the type, the webhook is served."""
    shoots: Literal["all", "local", "clouds"] = "all"
    """Which Shoots have it, by their types."""
    ip_family: str = ""
    """The family without which a Shoot does not need it."""
    matters: str = ""
    """In CEL: whether the webhook has something to do. It may exclude objects that it has changed."""

    @property
    def url_path(self) -> str:
        return f"/{self.path or self.name}"

    @property
    def second_path(self) -> str:
        """Where it is called again after a failed call."""
        return f"/again{self.url_path}"

    @property
    def called_twice(self) -> bool:
        """Whether a failed call may be made up for by a second one: API servers call mutators one by one."""
        return self.policy == "Fail" and not self.validating

    @property
    def policy(self) -> Literal["Fail", "Ignore"]:
        return self.failure_policy or ("Ignore" if self.target is Target.SHOOT else "Fail")

    def serves(self, group: str, version: str, kind: str) -> bool:
        """Whether objects of this kind may be reviewed."""
        return any(
            (rule.group, rule.kind) == (group, kind) and rule.version in (version, "*") for rule in self.rules
        )


def _in(key: str, *values: str, operator: str = "In") -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def _expressions(*expressions: dict[str, Any]) -> Selector:
    return {"matchExpressions": list(expressions)}


_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_SERVICES = Rule("", "v1", "services", "Service")
_DEPLOYMENTS = Rule("apps", "v1", "deployments", "Deployment")
_PROVIDER_LABEL = {"matchLabels": {"provider.extensions.gardener.cloud/local": "true"}}
_CORE = "core.gardener.cloud"

CONTROL_PLANE = Registration(
    "controlplane",
    Target.SEED,
    (
        _DEPLOYMENTS,
        Rule("autoscaling.k8s.io", "v1", "verticalpodautoscalers", "VerticalPodAutoscaler"),
        Rule("extensions.gardener.cloud", "v1alpha1", "operatingsystemconfigs", "OperatingSystemConfig"),
    ),
    namespaces=_expressions(_in("shoot.gardener.cloud/provider", "local")),
    objects={"matchLabels": {"provider.extensions.gardener.cloud/mutated-by-controlplane-webhook": "true"}},
    matters="""\
request.kind.kind == 'OperatingSystemConfig' ?
has(object.spec.purpose) && object.spec.purpose == 'reconcile' :
!has(object.metadata.name) ? false :
request.kind.kind == 'VerticalPodAutoscaler' ? object.metadata.name == 'machine-controller-manager-vpa' :
object.metadata.name == 'kube-scheduler' ?
!has(object.spec.template.metadata.labels) || !('injected-by' in object.spec.template.metadata.labels) ||
object.spec.template.metadata.labels['injected-by'] != 'provider-local' :
object.metadata.name == 'machine-controller-manager'""",
)
NETWORK_POLICY = Registration(
    "networkpolicy",
    Target.SEED,
    (Rule("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),),
    namespaces=_expressions(_in("seed.gardener.cloud/provider", "local")),
    matters="has(object.metadata.name) && object.metadata.name == 'allow-to-private-networks'",
)
PROMETHEUS = Registration(
    "prometheus",
    Target.SEED,
    (Rule("monitoring.coreos.com", "v1", "prometheuses", "Prometheus"),),
    objects=_expressions(
        _in("app", "prometheus"), _in("role", "monitoring"), _in("name", "garden", "longterm", "seed")
    ),
)
ROLLOUT_SPEEDUP = Registration(
    "rollout-speedup",
    Target.SEED,
    (_DEPLOYMENTS,),
    namespaces={"matchLabels": {_NAMESPACE_NAME: "garden"}},
    objects=_expressions(_in("role", "apiserver")),
)
_NODES = (Rule("", "v1", "nodes/*", "Node"),)
NODE = Registration("node", Target.SHOOT, _NODES, timeout=5, shoots="local")
INSTANCE = Registration(
    "instance",
    Target.SHOOT,
    _NODES,
    timeout=5,
    shoots="clouds",
    matters=f"has(object.metadata.annotations) && '{CAPACITY}' in object.metadata.annotations",
)
SHOOT = Registration(
    "shoot",
    Target.SHOOT,
    (Rule("", "v1", "configmaps", "ConfigMap"),),
    namespaces=_expressions(_in("gardener.cloud/purpose", "kube-system")),
    objects={"matchLabels": {"app": "kubernetes", "role": "proxy"}},
    failure_policy="Fail",  # kube-proxy must not be created unmutated
    matters="has(object.metadata.name) && object.metadata.name.startsWith('kube-proxy-config')",
)
CALICO_SELF_HOSTED_SHOOT = Registration(
    "calico-self-hosted-shoot",
    Target.SHOOT,
    (Rule("apps", "v1", "daemonsets", "DaemonSet"),),
    namespaces={"matchLabels": {_NAMESPACE_NAME: "kube-system", "gardener.cloud/role": "shoot"}},
    objects=_expressions(_in("k8s-app", "calico-node")),
)
ALICLOUD_SERVICES = Registration("alicloud.services", Target.SHOOT, (_SERVICES,), cloud="alicloud")
AWS_SERVICES = Registration("aws.services", Target.SHOOT, (_SERVICES,), cloud="aws", ip_family="IPv6")
AWS_INGRESS = Registration(
    "aws.ingress",
    Target.SHOOT,
    (Rule("", "v1", "configmaps", "ConfigMap"),),
    objects={"matchLabels": {"app": "nginx-ingress", "component": "controller", "release": "addons"}},
    cloud="aws",
)
DNS_CONFIG = Registration(
    "dnsconfig",
    Target.SEED,
    (_DEPLOYMENTS, Rule("", "v1", "pods", "Pod")),
    namespaces=_expressions(_in(_NAMESPACE_NAME, "gardenadm-unmanaged-infra", operator="NotIn")),
    objects=_expressions(_in("app", "machine", "dependency-watchdog-prober", "blackbox-exporter")),
)
"""Gardener removed it after v1.137."""

MUTATOR = Registration(
    "mutator",
    Target.GARDEN,
    (
        Rule(_CORE, "v1beta1", "shoots", "Shoot"),
        Rule(_CORE, "v1beta1", "namespacedcloudprofiles/status", "NamespacedCloudProfile"),
    ),
    objects=_PROVIDER_LABEL,
    path="webhooks/mutate",
    matters="""\
request.kind.kind != 'Shoot' || !has(object.metadata.annotations) ||
!('extensions.gardener.cloud/processed-by' in object.metadata.annotations)""",
)
VALIDATOR = Registration(
    "validator",
    Target.GARDEN,
    (
        Rule(_CORE, "*", "cloudprofiles", "CloudProfile"),
        Rule(_CORE, "*", "namespacedcloudprofiles", "NamespacedCloudProfile"),
        Rule(_CORE, "*", "shoots", "Shoot"),
        Rule("security.gardener.cloud", "v1alpha1", "workloadidentities", "WorkloadIdentity"),
    ),
    objects=_PROVIDER_LABEL,
    path="webhooks/validate",
    validating=True,
)
SECRETS_VALIDATOR = Registration(
    "secrets.validator",
    Target.GARDEN,
    (Rule("", "v1", "secrets", "Secret"),),
    objects={"matchLabels": {"provider.shoot.gardener.cloud/local": "true"}},
    path="webhooks/validate/secrets",
    validating=True,
)


def mutator_of(cloud: Cloud) -> Registration:
    rules = [Rule(_CORE, "v1beta1", "shoots", "Shoot")]
    if cloud.namespaced_profiles:
        rules.append(Rule(_CORE, "v1beta1", "namespacedcloudprofiles/status", "NamespacedCloudProfile"))
    return Registration(
        f"{cloud.type}.mutator",
        Target.GARDEN,
        tuple(rules),
        objects={"matchLabels": {f"provider.extensions.gardener.cloud/{cloud.type}": "true"}},
        path=f"webhooks/mutate/{cloud.type}",
        cloud=cloud.type,
    )


def validator_of(cloud: Cloud) -> Registration:
    rules = [
        Rule(_CORE, "*", "cloudprofiles", "CloudProfile"),
        Rule(_CORE, "*", "secretbindings", "SecretBinding"),
        Rule(_CORE, "*", "shoots", "Shoot"),
        Rule("security.gardener.cloud", "v1alpha1", "credentialsbindings", "CredentialsBinding"),
    ]
    if cloud.namespaced_profiles:
        rules.append(Rule(_CORE, "*", "namespacedcloudprofiles", "NamespacedCloudProfile"))
    if cloud.seeds:
        rules.append(Rule(_CORE, "*", "seeds", "Seed"))
    return Registration(
        f"{cloud.type}.validator",
        Target.GARDEN,
        tuple(rules),
        objects={"matchLabels": {f"provider.extensions.gardener.cloud/{cloud.type}": "true"}},
        path=f"webhooks/validate/{cloud.type}",
        validating=True,
        cloud=cloud.type,
    )


def secrets_validator_of(cloud: Cloud) -> Registration:
    return Registration(
        f"{cloud.type}.secrets.validator",
        Target.GARDEN,
        SECRETS_VALIDATOR.rules,
        objects={"matchLabels": {f"provider.shoot.gardener.cloud/{cloud.type}": "true"}},
        path=f"webhooks/validate/secrets/{cloud.type}",
        validating=True,
        cloud=cloud.type,
    )


def provider_secret_of(cloud: Cloud) -> Registration:
    return Registration(
        f"{cloud.type}.cloudprovider",
        Target.SEED,
        SECRETS_VALIDATOR.rules,
        namespaces=_expressions(_in("shoot.gardener.cloud/provider", cloud.type)),
        objects={"matchLabels": {"gardener.cloud/purpose": "cloudprovider"}},
        path=f"cloudprovider/{cloud.type}",
        cloud=cloud.type,
        matters="has(object.metadata.name) && object.metadata.name == 'cloudprovider'",
    )


REGISTRATIONS = {
    one.name: one
    for one in (
        ALICLOUD_SERVICES,
        AWS_INGRESS,
        AWS_SERVICES,
        CALICO_SELF_HOSTED_SHOOT,
        CONTROL_PLANE,
        DNS_CONFIG,
        MUTATOR,
        NETWORK_POLICY,
        INSTANCE,
        NODE,
        PROMETHEUS,
        ROLLOUT_SPEEDUP,
        SECRETS_VALIDATOR,
        SHOOT,
        VALIDATOR,
        *(make(cloud) for cloud in IN_GARDENS for make in (mutator_of, secrets_validator_of, validator_of)),
        *map(provider_secret_of, WITH_PROVIDER_SECRETS),
    )
}
"""By name, in the order of configurations."""
