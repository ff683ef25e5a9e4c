"""The values of the chart: values.yaml and values.schema.json are written from these models."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from windowbox.kinds import POOLS

Object = dict[str, Any]
Texts = dict[str, str]
Count = Annotated[int, Field(ge=0)]
Pool = Annotated[str, WithJsonSchema({"enum": list(POOLS)})]
ChartSettings = Annotated[Object, WithJsonSchema({"$comment": "Settings"})]
"""Settings of windowbox, as far as they are not the chart's to make."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class Image(Section):
    """An image."""

    registry: str = Field("", description="Before the repository; `global.imageRegistry` goes before all.")
    repository: str = ""
    tag: str = Field("", description="For windowbox itself: the version of the chart, if empty.")
    digest: str = Field(
        "", pattern="^(sha256:[0-9a-f]{64})?$", description="Pins the image; wins over `tag`."
    )
    pull_policy: Literal["", "Always", "IfNotPresent", "Never"] = ""


class Global(Section):
    """The values that charts share if they are installed together."""

    image_registry: str = ""
    image_pull_secrets: list[str] = []


class Pod(Section):
    """The values for the Pods of every role."""

    resources: Object = {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "512Mi"}}
    priority_class_name: str = ""
    node_selector: Texts = {}
    tolerations: list[Object] = []
    affinity: Object = {}
    topology_spread: Literal["", "ScheduleAnyway", "DoNotSchedule"] = Field(
        "ScheduleAnyway",
        description="How strictly Pods are spread over nodes; zones are a preference. Empty: not at all.",
    )
    pod_annotations: Texts = {}
    pod_labels: Texts = {}
    extra_env: list[Object] = []
    extra_volumes: list[Object] = []
    extra_volume_mounts: list[Object] = []


class Role(Pod):
    replicas: Count = 1
    settings: ChartSettings = Field({}, description="Laid over `settings` for this role alone.")
    pod_security_context: Object = Field({}, description="Laid over the restricted one.")
    security_context: Object = Field({}, description="Laid over the restricted one of the container.")


class Autoscaling(Section):
    """How many Pods a group of pools has. One way at a time."""

    type: Literal["none", "hpa", "keda"] = Field(
        "none", description="none: `replicas`; hpa: by CPU; keda: by the items that wait in each pool."
    )
    min_replicas: Annotated[int, Field(ge=1)] = 1
    max_replicas: Annotated[int, Field(ge=1)] = 4
    cpu: Annotated[int, Field(ge=1)] = Field(70, description="For hpa: percent of the CPU requested.")
    lag: Annotated[int, Field(ge=1)] = Field(200, description="For keda: waiting items for each Pod.")


class Run(Role):
    enabled: bool = Field(
        False,
        description="One Pod, `windowbox run`, in place of those of `watch`, `work` and `patch`. It takes "
        "less memory, and has the rights of all three.",
    )
    pools: list[Pool] = Field([], description="The pools that it serves; none: all.")


class Group(Role):
    """One Deployment of `windowbox work`."""

    name: str = Field("all", pattern="^[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?$")
    pools: list[Pool] = Field([], description="The pools that it serves; none: all.")
    autoscaling: Autoscaling = Autoscaling()


class Edge(Role):
    resources: Object = {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "1Gi"}}
    enabled: bool = Field(False, description="Run Envoy. Needs settings.loadbalancer.ranges.")
    host_network: bool = Field(
        True,
        description="Addresses of load balancers are those of its node. False needs networkPolicies.enabled: "
        "false, because the addresses of clients are unknown.",
    )
    metrics_port: int = Field(19090, ge=1, le=65535, description="On its node's network, too.")
    host_path: str = Field(
        "/var/lib/windowbox/edge",
        description="Folder of the node for Envoy's files. Envoy then has a Pod of its own, which upgrades "
        "leave alone, and there is one edge; empty: it ends with the edge's Pod.",
    )
    spread: bool = Field(
        False,
        description="An edge and an Envoy on each node of `nodeSelector`. Each address is on one node, and "
        "moves when that dies. Addresses have to be of the nodes' subnet.",
    )


class Admit(Role):
    enabled: bool = Field(False, description="Serve webhooks. Needs Gardener's kinds.")
    port: int = Field(10250, ge=1, le=65535)


class Ui(Role):
    enabled: bool = Field(False, description="Serve the page that shows the cloud at work: docs/ui.md.")
    port: int = Field(8470, ge=1, le=65535)
    replicas: Annotated[int, Field(ge=0, le=1)] = Field(1, description="Sessions are in its memory.")


class Grant(Role):
    enabled: bool = Field(True, description="Bind the rights on Secrets in settings.grant.namespaces.")


class Operator(Section):
    """A Pod for commands that observe windowbox."""

    enabled: bool = Field(
        False,
        description="A Pod for `kubectl exec`, in which `windowbox trace`, `top` and `record` reach the bus. "
        "A user who may exec there can read everything on the bus.",
    )
    resources: Object = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "512Mi"}}


class Storage(Section):
    size: str = Field("16Gi", pattern="^[0-9]+([KMGT]i?)?$")
    class_name: str = ""
    ephemeral: bool = Field(False, description="An emptyDir instead of a volume: for laptops.")


class Nats(Pod):
    """The bus: a cluster of NATS servers of the chart's own, or one of yours."""

    enabled: bool = Field(True, description="Bring NATS. Otherwise set `url`.")
    url: str = Field("", description="The servers of your own NATS, by comma, where `enabled` is false.")
    image: Image = Image(repository="nats", tag="2.15.2-alpine")
    replicas: Literal[1, 3] = Field(1, description="Servers, and copies of every stream.")
    cluster_ip: str = Field("", alias="clusterIP", description="The address of the Service; empty: any.")
    existing_secret: str = Field(
        "",
        description="A Secret with the passwords of users: watcher, worker, edge, patcher, admit, operator, "
        "and ui where that is enabled.",
    )
    tls_secret: str = Field("", description="A Secret with ca.crt, tls.crt and tls.key for the servers.")
    ca_secret: str = Field(
        "", description="A Secret with ca.crt that verifies your own NATS; empty: the one of `tlsSecret`."
    )
    storage: Storage = Field(
        Storage(),
        description="A third more than what all streams may hold: settings.objects.size and 5.5 GiB.",
    )
    sync_interval: str = Field(
        "2m",
        description="How often JetStream calls fsync. Messages lost in a power failure of all "
        "servers are read again from the clusters: a short interval gains little, and costs disk writes.",
    )


class Service(Section):
    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    port: int = Field(53, ge=1, le=65535)
    cluster_ip: str = Field("", alias="clusterIP")
    annotations: Texts = {}


class Bind(Pod):
    """A name server of the chart's own. For another one, see settings.dns.zones."""

    enabled: bool = False
    image: Image = Image(repository="internetsystemsconsortium/bind9", tag="9.18")
    zone: str = "local.gardener.cloud"
    existing_secret: str = Field("", description="A Secret with the TSIG key (hmac-sha256) as `secret`.")
    service: Service = Service()
    storage: Storage = Storage(size="100Mi")


class Rbac(Section):
    create: bool = True
    name: str = Field(
        "",
        pattern="^([a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?)?$",
        description="ClusterRoles are called system:NAME:ROLE. Empty: windowbox. A second release in one "
        "cluster needs a name of its own.",
    )
    provider: bool = Field(
        False,
        description="Machines run in this cluster: bind the rights for it to workers, with get, create, "
        "patch and delete of Secrets in every namespace, kube-system included.",
    )


class ServiceAccounts(Section):
    annotations: Texts = {}


class NetworkPolicies(Section):
    """The NetworkPolicies of windowbox's Pods, in both directions."""

    enabled: bool = True
    api_servers: list[str] = Field(
        [],
        description="Ranges of this cluster's API server. The chart cannot know them, and most are private; "
        "so none means: any address but loopback, link-local and metadata ones, on the ports of "
        "`apiServerPorts`.",
    )
    provider_clusters: list[str] = Field(
        [],
        description="Ranges of API servers of other clusters: provider clusters, Shoots, those that join. "
        "They count beside `apiServers`, and are refused without it.",
    )
    api_server_ports: list[int] = [443, 6443]
    name_servers: list[str] = Field(
        [],
        description="Ranges of name servers that take updates. Addresses in settings.dns.zones need not be "
        "repeated; names do.",
    )
    dns: list[Object] = Field(
        [
            {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
                "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
            }
        ],
        description="DNS servers of Pods, as peers of a NetworkPolicy. With NodeLocal DNSCache, add "
        "`{ipBlock: {cidr: 169.254.20.10/32}}`.",
    )
    edge_nodes: list[str] = Field(
        [], description="Ranges of the edge's nodes, which may connect to the bus. None: any address."
    )
    extra_egress: list[Object] = Field([], description="More rules for all Pods of windowbox.")
    monitoring: Object = Field({}, description="Namespaces (a selector) that may read metrics. None: all.")


class Monitored(Section):
    enabled: bool = False
    labels: Texts = {}


class PrometheusRule(Monitored):
    runbooks: str = Field(
        "", description="URL of docs/alerts.md: alerts link their section of it. Empty: no link."
    )


class ServiceMonitor(Monitored):
    interval: str = "30s"


class Monitoring(Section):
    annotations: bool = Field(True, description="Pods have the annotations prometheus.io/…")
    service_monitor: ServiceMonitor = ServiceMonitor()
    prometheus_rule: PrometheusRule = PrometheusRule()
    dashboards: Monitored = Monitored(labels={"grafana_dashboard": "1"})


class Disruption(Section):
    enabled: bool = Field(True, description="A PodDisruptionBudget for each role with more than one Pod.")


class Amounts(Section):
    """Of a container; empty: no bound."""

    cpu: str = Field("", pattern="^([0-9]+m?)?$")
    memory: str = Field("", pattern="^([0-9]+([KMGT]i?)?)?$")


class ResourcePolicy(Section):
    min_allowed: Amounts = Field(
        Amounts(memory="96Mi"),
        description="The working set of an idle worker is 61 MB, too much for the 64Mi of Gardener's "
        "charts. Empty: no bound.",
    )
    max_allowed: Amounts = Field(Amounts(), description="Limits of `resources` bound requests anyway.")


class UpdatePolicy(Section):
    update_mode: Literal["Off", "Initial", "Recreate", "InPlace", "InPlaceOrRecreate", "Auto"] = (
        "InPlaceOrRecreate"
    )


class VerticalPodAutoscalers(Section):
    """With the keys of Gardener's charts."""

    enabled: bool = Field(
        False,
        description="A VerticalPodAutoscaler for each role, not for NATS, BIND and Pods with an Envoy. It "
        "changes requests, no limits; where an HPA scales by CPU, of memory only. Needs its "
        "CustomResourceDefinition.",
    )
    resource_policy: ResourcePolicy = ResourcePolicy()
    update_policy: UpdatePolicy = UpdatePolicy()


class Testing(Section):
    enabled: bool = Field(True, description="`helm test` creates a record in `zone` and resolves it.")
    zone: str = Field("", description="Empty: that of `bind`, or the first of settings.dns.zones.")


class Values(Section):
    """All values of the chart."""

    name_override: str = ""
    fullname_override: str = Field("", max_length=40)
    global_: Global = Field(Global(), alias="global")
    image: Image = Image(repository="windowbox")
    image_pull_secrets: list[str] = []
    host_aliases: list[Object] = Field(
        [], description="Names for all Pods that the cluster's DNS does not know."
    )
    settings: ChartSettings = Field(
        {},
        description="Settings of all roles, as in docs/settings.md, without `nats`, `metrics` and `probes`. "
        "What the chart's Services, ports and volumes depend on, like `webhooks.address`, is refused.",
    )
    seeds: dict[str, ChartSettings] = Field(
        {},
        description="Laid over `settings` on one seed, by its name; all seeds get the same values.",
    )
    run: Run = Run()
    watch: Role = Role()
    work: list[Group] = Field([Group()], description="Deployments of `windowbox work`.")
    patch: Role = Role()
    edge: Edge = Edge()
    admit: Admit = Admit()
    ui: Ui = Ui()
    grant: Grant = Grant()
    operator: Operator = Operator()
    nats: Nats = Nats()
    bind: Bind = Bind()
    rbac: Rbac = Rbac()
    service_account: ServiceAccounts = ServiceAccounts()
    network_policies: NetworkPolicies = NetworkPolicies()
    monitoring: Monitoring = Monitoring()
    pod_disruption_budget: Disruption = Disruption()
    vpa: VerticalPodAutoscalers = VerticalPodAutoscalers()
    test: Testing = Testing()
    image_vector_overwrite: Object = Field(
        {}, description="Entries that overwrite the built-in image vector."
    )
    extra_objects: list[Object] = Field([], description="More objects, as they are.")
    gardener: Object = Field({}, description="What gardenlet and gardener-operator inject.")
    usable_ports: list[int] = Field([], description="What gardenadm injects: ports for metrics and webhooks.")
