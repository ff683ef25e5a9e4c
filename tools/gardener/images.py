"""The images that Gardener and its parts name, and what this landscape has in their place: the one table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from sandbox.nodes import images
from sandbox.nodes.images import Image
from tools.gardener import envoyimages, hosttools, programs

How = Literal["real", "stand-in", "played", "absent"]

_RELEASES = "gardener-project/releases"
_GARDENER, _THIRD = f"{_RELEASES}/gardener", f"{_RELEASES}/3rd"
_PASSWD = "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"
_GROUP = "root:x:0:\nnonroot:x:65532:\n"
_NONROOT = "65532:65532"
_ASLEEP = "#!/bin/sh\nexec sleep 2147483647\n"
_SUFFIXES = {f"v{version}": suffix for version, suffix in programs.KUBERNETES.items()}


@dataclass(frozen=True)
class Component:
    """An image by the path of its repository, without a host, and what is in it."""

    repository: str
    how: How
    files: Mapping[str, str] = field(default_factory=dict)
    """The name of the program for each path."""
    entrypoint: tuple[str, ...] = ()
    """The first program if empty."""
    why: str = ""
    """One sentence for people: what takes its place, or why nothing does."""
    user: str = _NONROOT
    kubernetes: bool = False
    """Whether its tag is the version of Kubernetes that its program has. Others have any tag."""
    tools: tuple[str, ...] = ()
    """Programs of this machine in /usr/sbin. Such an image has Busybox, too."""
    scripts: Mapping[str, str] = field(default_factory=dict)
    """The text of each script. Such an image has Busybox, too."""
    busybox: bool = False
    """Whether it has a shell, and the other applets of Busybox."""
    zones: bool = False
    """Whether it needs the world's time zones."""
    made: Callable[[str], Image] | None = None
    """What makes the image of a name, if it is not put together from these columns."""


def find(reference: str) -> Component | None:
    """The row for `[host/]repository[:tag][@digest]`, or None if the table has none."""
    repository, tag = _parted(reference)
    row = COMPONENTS.get(repository)
    return None if row and row.kubernetes and tag and tag not in _SUFFIXES else row


def image(reference: str) -> Image | None:
    """The image of this name; None if its Pods are played, or nobody knows it."""
    row = find(reference)
    if row is None or row.how in ("played", "absent"):
        return None
    if row.made:
        return row.made(reference)
    if row.repository == "pause":
        return replace(_sandbox(images.PAUSE), name=reference, user=_NONROOT)
    suffix = _SUFFIXES.get(_parted(reference)[1], "") if row.kubernetes else ""
    files: dict[str, Path | str] = {}
    for name, program in row.files.items():
        other = f"{program}{suffix}"
        files[name.lstrip("/")] = programs.path(other if other in programs.TESTS else program)
    files |= {name.lstrip("/"): text for name, text in row.scripts.items()}
    entrypoint = row.entrypoint or tuple(row.files)[:1]
    if not (row.busybox or row.tools or row.scripts):
        files |= {"etc/passwd": _PASSWD, "etc/group": _GROUP, **(hosttools.zones() if row.zones else {})}
        return Image(reference, files, entrypoint, folders=("tmp", "home/nonroot"), user=row.user)
    base = _sandbox(images.BUSYBOX)
    found, links = hosttools.files(row.tools)
    # What this machine has comes before the applets of the same name.
    applets = {name: target for name, target in base.links.items() if name not in found}
    return replace(
        base, name=reference, files={**base.files, **found, **files}, links={**applets, **links},
        entrypoint=entrypoint, command=() if entrypoint else base.command, user=row.user,
    )  # fmt: skip


def _sandbox(name: str) -> Image:
    return next(one for one in images.images() if one.name == name)


def _parted(reference: str) -> tuple[str, str]:
    """The path of the repository, and the tag."""
    path, _, _ = reference.partition("@")
    first, slash, rest = path.partition("/")
    # Only a host has a dot or a port.
    path = rest if slash and re.search(r"[.:]|^localhost$", first) else path
    repository, _, tag = path.partition(":")
    return re.sub(r"^gardener-project/(public|snapshots)/", f"{_RELEASES}/", repository), tag


def _rows() -> Iterator[Component]:
    yield from _gardener()
    yield from _etcd()
    yield from _kubernetes()
    yield from _networking()
    yield from _autoscaling()
    yield from _observability()
    yield from _tests()


def _gardener() -> Iterator[Component]:
    for name in ("operator", "apiserver", "controller-manager", "scheduler", "admission-controller"):
        program = {f"/gardener-{name}": f"gardener-{name}"}
        # Schedules of hibernation name the zones that they are in.
        yield Component(f"{_GARDENER}/{name}", "real", program, zones=True)
    yield Component(f"{_GARDENER}/gardenlet", "real", {"/gardenlet": "gardenlet"})
    yield Component(
        f"{_GARDENER}/resource-manager", "real",
        {"/gardener-resource-manager": "gardener-resource-manager-whole"},
    )  # fmt: skip
    yield Component(f"{_GARDENER}/node-agent", "real", {"/gardener-node-agent": "gardener-node-agent"})
    yield Component(
        f"{_GARDENER}/dependency-watchdog",
        "real",
        {"/usr/local/bin/dependency-watchdog": "dependency-watchdog"},
    )
    yield Component(
        f"{_GARDENER}/machine-controller-manager", "real",
        {"/machine-controller-manager": "machine-controller-manager"},
        why="Without Gardener's driver: windowbox creates machines.",
    )  # fmt: skip
    yield Component(
        f"{_GARDENER}/gardener-discovery-server", "played",
        why="Its module is not public. Nobody here reads the keys of issuers that it would publish.",
    )  # fmt: skip
    for name, why in (
        ("gardenadm", "No Shoot hosts itself."),
        ("dashboard", "It is written for Node.js; the Garden does not ask for it."),
        ("terminal-controller-manager", "Its module is not public; the Garden does not ask for it."),
    ):
        yield Component(f"{_GARDENER}/{name}", "absent", why=why)


def _etcd() -> Iterator[Component]:
    yield Component(f"{_GARDENER}/etcd-druid", "real", {"/etcd-druid": "etcd-druid"})
    yield Component(f"{_GARDENER}/etcdbrctl", "real", {"/etcdbrctl": "etcdbrctl"})
    yield Component(
        f"{_GARDENER}/etcd-wrapper", "stand-in", {"/etcd-wrapper": "etcd-wrapper"},
        why="It runs etcd 3.5, and has the arguments of the original.",
    )  # fmt: skip
    yield Component(f"{_THIRD}/alpine", "stand-in", busybox=True, user="", why="Busybox in its place.")
    yield Component("etcd-development/etcd", "absent", why="No Shoot hosts itself.")


def _kubernetes() -> Iterator[Component]:
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        yield Component(name, "real", {f"/usr/local/bin/{name}": name}, user="", kubernetes=True)
    yield Component(
        "kube-proxy", "real", {"/usr/local/bin/kube-proxy": "kube-proxy"}, user="", kubernetes=True,
        tools=("iptables", "nft", "conntrack"),
    )  # fmt: skip
    # Nodes take the kubelet out of it; Gardener's tests use kubectl in a container that does nothing else.
    yield Component(
        f"{_RELEASES}/hyperkube", "real", {"/kubelet": "kubelet", "/kubectl": "kubectl"}, kubernetes=True,
        busybox=True, entrypoint=("/bin/busybox", "sleep", "2147483647"),
    )  # fmt: skip
    yield Component("pause", "stand-in", why="Busybox sleeps in its place.")
    yield Component("metrics-server/metrics-server", "real", {"/metrics-server": "metrics-server"})
    yield Component(
        "node-problem-detector/node-problem-detector", "stand-in", user="",
        scripts={"/node-problem-detector": _ASLEEP},
        why="It sleeps: the kernel that it would watch is that of this machine.",
    )  # fmt: skip
    for name in ("dashboard", "metrics-scraper"):
        yield Component(f"{_THIRD}/kubernetesui/{name}", "absent", why="An addon that no Shoot here has.")


def _networking() -> Iterator[Component]:
    yield Component(
        "coredns/coredns", "real", {"/coredns": "coredns"},
        why="With the plugins that Gardener configures, without those of clouds.",
    )  # fmt: skip
    yield Component(
        f"{_GARDENER}/alpine-iptables", "stand-in", tools=("iptables",), user="",
        why="Busybox, and the iptables of this machine.",
    )  # fmt: skip
    yield Component(
        f"{_GARDENER}/alpine-conntrack", "stand-in", tools=("conntrack",), user="",
        why="Busybox, and the conntrack of this machine.",
    )  # fmt: skip
    for name in ("vpn-server", "vpn-client"):
        yield Component(
            f"{_GARDENER}/{name}", "stand-in", {f"/bin/{name}": name}, tools=("nft", "openvpn"), user="",
            why="It configures the OpenVPN of this machine, as the original does its own.",
        )  # fmt: skip
    yield Component(
        f"{_GARDENER}/apiserver-proxy", "stand-in", {"/apiserver-proxy": "apiserver-proxy"},
        busybox=True, user="", why="It gives nodes the address of the API server.",
    )  # fmt: skip
    yield Component(
        f"{_GARDENER}/ext-authz-server", "stand-in", {"/ext-authz-server": "ext-authz-server"},
        why="It tells ingress gateways whose password is right, as the original does.",
    )  # fmt: skip
    yield Component(
        "istio-release/pilot", "real", {"/usr/local/bin/pilot-discovery": "pilot-discovery"},
        made=envoyimages.pilot, why="Of April 2026, after 1.29 and before 1.30.",
    )  # fmt: skip
    yield Component(
        "istio-release/proxyv2", "real", {"/usr/local/bin/pilot-agent": "pilot-agent"},
        made=envoyimages.gateway, why="With windowbox's Envoy, which lacks Istio's metrics.",
    )  # fmt: skip
    yield Component(f"{_THIRD}/envoyproxy/envoy", "real", made=envoyimages.envoy, why="windowbox's Envoy.")
    yield Component(
        "ingress-nginx/controller-chroot", "played", why="It is nginx with modules that are written in C."
    )
    yield Component(f"{_GARDENER}/ingress-default-backend", "played", why="Its module is not public.")
    yield Component("dns/k8s-dns-node-cache", "absent", why="No Shoot here enables node-local DNS.")
    yield Component(
        f"{_GARDENER}/coredns-config-adapter", "absent", why="No Shoot here enables node-local DNS."
    )


def _autoscaling() -> Iterator[Component]:
    for name in ("admission-controller", "recommender", "updater"):
        yield Component(f"autoscaling/vpa-{name}", "real", {f"/{name}": f"vpa-{name}"})
    yield Component(f"{_GARDENER}/autoscaler/cluster-autoscaler", "played", why="Its module is not public.")
    yield Component("cpa/cluster-proportional-autoscaler", "absent", why="Shoots scale CoreDNS horizontally.")
    yield Component(f"{_GARDENER}/pvc-autoscaler", "played", why="It is not built yet.")


def _observability() -> Iterator[Component]:
    # On the nodes of Shoots nobody plays Pods.
    yield Component(
        "prometheus/node-exporter", "real", {"/bin/node_exporter": "node_exporter"}, user="65534:65534"
    )
    yield Component("prometheus/blackbox-exporter", "real", {"/bin/blackbox_exporter": "blackbox_exporter"})
    # Who rotates credentials asks for its first page.
    yield Component(
        f"{_THIRD}/credativ/plutono", "stand-in", scripts={"/www/index.html": "Plutono is played.\n"},
        entrypoint=("/bin/busybox", "httpd", "-f", "-p", "3000", "-h", "/www"),
        why="It serves one page, behind the password of the original.",
    )  # fmt: skip
    yield Component(
        "kiwigrid/k8s-sidecar", "stand-in", scripts={"/bin/python": _ASLEEP},
        why="It sleeps: nobody reads the dashboards that it would load.",
    )  # fmt: skip
    for repository in (
        f"{_THIRD}/opentelemetry-operator/opentelemetry-operator",
        f"{_GARDENER}/observability/opentelemetry-collector",
        f"{_THIRD}/victoriametrics/victoria-logs", f"{_THIRD}/victoriametrics/operator",
        "prometheus-operator/prometheus-operator", "prometheus-operator/prometheus-config-reloader",
        "prometheus/prometheus", "prometheus/alertmanager",
        "cortexproject/cortex", "kube-state-metrics/kube-state-metrics", f"{_GARDENER}/metrics-exporter",
        f"{_THIRD}/persesdev/perses", f"{_THIRD}/persesdev/perses-operator",
        f"{_THIRD}/fluent-operator/fluent-operator", f"{_THIRD}/fluent-operator/fluent-bit",
        f"{_GARDENER}/fluent-bit-to-vali", f"{_GARDENER}/fluent-bit-plugin",
        f"{_THIRD}/credativ/vali", f"{_GARDENER}/vali-curator", f"{_THIRD}/credativ/valitail",
        "brancz/kube-rbac-proxy", f"{_GARDENER}/telegraf-iptables", f"{_GARDENER}/event-logger",
        f"{_GARDENER}/tune2fs",
    ):  # fmt: skip
        yield Component(repository, "played", why="Nothing here depends on what it observes.")


def _tests() -> Iterator[Component]:
    """Images that Gardener's end-to-end tests name."""
    yield Component(
        "curl/curl", "stand-in", tools=("curl",), user="", why="Busybox, and the curl of this machine."
    )
    yield Component(
        "e2e-test-images/busybox", "stand-in", busybox=True, user="", why="The Busybox of this machine."
    )


COMPONENTS: dict[str, Component] = {row.repository: row for row in _rows()}
