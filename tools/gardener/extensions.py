"""The extensions of the landscape: windowbox itself, from its charts, and a played one for networks.

Both ways of deploy/gardener are used as they are shipped, with the addresses of the landscape's registry, and
with values for a small machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from sandbox.nodes import images
from sandbox.nodes.addresses import Plan
from sandbox.nodes.images import Image
from sandbox.programs import binaries
from sandbox.servers import zoneserver
from tools.gardener.kubectl import manifest
from tools.release import building, ownimage

Manifest = dict[str, Any]

REGISTRY = "registry.local.gardener.cloud:5001/windowbox"
VERSION = building.consistent_version()
NETWORKING = "networking-calico"
"""The played extension."""
CHARTS = {
    **{f"windowbox/charts/{name}": building.ROOT / "deploy" / "charts" / name for name in building.CHARTS},
    f"windowbox/charts/{NETWORKING}": Path(__file__).parent / "charts" / NETWORKING,
}
"""The folder of each chart, by its repository without the host."""
IMAGES: dict[str, Callable[[], Image]] = {
    "windowbox/windowbox": lambda: ownimage.image(edge=True),
    # What windowbox deploys into Shoots.
    "k8s-staging-kind/local-path-provisioner": lambda: images.provisioner(
        binaries.find("local-path-provisioner")
    ),
    "k8s-staging-kind/local-path-helper": lambda: next(
        one for one in images.images() if one.name == images.BUSYBOX
    ),
}
"""By repositories without the host."""
HOST_KINDS = ("services", "nodes", "namespaces", "pods", "endpointslices.discovery.k8s.io")
"""What the process on the host serves: load balancers of the sandbox's own Services."""
_SHIPPED = building.ROOT / "deploy" / "gardener"
_PLACEHOLDER = "registry.example"


def image(repository: str, tag: str) -> Image:
    return replace(IMAGES[repository](), name=f"{repository}:{tag}", aliases=())


def balancers(plan: Plan) -> str:
    """The addresses of load balancers of Shoots: of the network of nodes, so that no route leads to them."""
    return str(list(plan.nodes_v4.subnets(new_prefix=27))[6])


def operator_extensions(
    plan: Plan, dns_port: int, others: Mapping[str, Plan] = MappingProxyType({})
) -> list[Manifest]:
    """The Extensions for gardener-operator, in its cluster; `others` has the plans of other seeds."""
    [ours] = _shipped("extension")
    deployment = ours["spec"]["deployment"]
    extension = deployment["extension"]
    extension["values"] = _of_seeds(extension["values"], plan, dns_port)
    extension["values"]["seeds"] = {name: _networks(other) for name, other in others.items()}
    extension["runtimeClusterValues"] = _of_gardens(extension["runtimeClusterValues"], plan, dns_port)
    return [ours, *_played("extension")]


def registrations(plan: Plan, dns_port: int) -> list[Manifest]:
    """The same for a garden without gardener-operator."""
    deployment, registration = _shipped("controllerregistration")
    helm = deployment["helm"]
    helm["values"] = _of_seeds(helm["values"], plan, dns_port)
    return [deployment, registration, *_played("controllerregistration")]


def _shipped(name: str) -> list[Manifest]:
    """The documents of a file of deploy/gardener, with the addresses that it asks for."""
    text = (_SHIPPED / f"{name}.yaml").read_text()
    return list(yaml.safe_load_all(text.replace(_PLACEHOLDER, REGISTRY)))


def _played(name: str) -> list[Manifest]:
    chart = f"{REGISTRY}/charts/{NETWORKING}:{VERSION}"
    return list(yaml.safe_load_all(manifest(f"networking-{name}", {"chart": chart})))


def _of_seeds(values: Manifest, plan: Plan, dns_port: int) -> Manifest:
    """Values for a seed: all kinds, and the load balancers of Shoots, but none of the seed's own Services."""
    made = _small(values, plan, dns_port)
    made["edge"] = {"enabled": True}
    made["rbac"]["name"] = "windowbox-seed"
    own = _networks(plan)
    # Machines of all seeds are in the first sandbox.
    machines = {"node_networks": [str(plan.nodes_v4)], "dns": [f"{plan.host_v4}/32"]}
    made["settings"] |= {
        "loadbalancer": {"clusters": ["shoot--*"], **own["loadbalancer"]},
        "infrastructure": {**machines, **own["infrastructure"]},
    }
    return made


def _networks(plan: Plan) -> Manifest:
    """The settings of a seed about its load balancers: Envoy for them is on its nodes."""
    return {
        "loadbalancer": {"ranges": [{"prefixes": [balancers(plan)]}]},
        "infrastructure": {"balancers": [str(plan.nodes_v4)], "external": [balancers(plan)]},
    }


def _of_gardens(values: Manifest, plan: Plan, dns_port: int) -> Manifest:
    return _small(values, plan, dns_port)


def _small(values: Manifest, plan: Plan, dns_port: int) -> Manifest:
    """Values for the sandbox: one Pod in place of three, no volume, and the sandbox's name server."""
    made = {key: value for key, value in values.items() if key != "work"}
    [group] = values["work"]
    made["run"] = {"enabled": True, **{key: value for key, value in group.items() if key != "name"}}
    made["admit"] = {"enabled": True}
    # The whole image has nats-server, too.
    made["nats"] = {
        "image": {"registry": REGISTRY, "repository": "windowbox", "tag": VERSION},
        "storage": {"ephemeral": True, "size": "8Gi"},
    }
    made["settings"] |= {
        "objects": {"size": 256},
        "grant": {"namespaces": ["*"]},
        "dns": {"zones": [{"name": zoneserver.ZONE, "servers": [f"{plan.host_v4}:{dns_port}"]}]},
    }
    return made
