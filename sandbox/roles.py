"""windowbox's processes in the sandbox, each with the settings and rights of its role."""

from __future__ import annotations

import csv
import io
import secrets
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sandbox import files, processes
from sandbox.children import Child
from sandbox.nodes import images
from sandbox.nodes.addresses import Plan
from sandbox.servers import controlplane, kubeconfigs, manifests, zoneserver
from sandbox.servers.apiserver import ApiServer
from sandbox.servers.certificates import Pair
from sandbox.servers.zoneserver import Key
from windowbox.models.clouds import CLOUD_TYPES
from windowbox.rights import rbac

COMMANDS = {
    "runner": ["run"],
    "watcher": ["watch"],
    "worker": ["work"],
    "patcher": ["patch"],
    "admit": ["admit"],
    "admission": ["admit", "--garden"],
    "ui": ["ui"],
}
_IMAGES = [
    {"name": "local-path-provisioner", "ref": images.PROVISIONER},
    {"name": "local-path-helper", "ref": images.BUSYBOX},
]
"""Of what is deployed into Shoots: nothing is pulled from elsewhere."""


@dataclass(frozen=True)
class Surroundings:
    """Addresses and credentials of a sandbox's servers."""

    folder: Path
    api: ApiServer
    bus: str
    """The URLs of the NATS servers, by comma."""
    replicas: int
    """How many of them have a copy of each stream."""
    passwords: dict[str, str]
    dns_port: int
    dns_key: Key | None
    prefixes: tuple[str, ...]
    """The addresses of load balancers."""
    plan: Plan | None = None
    """The addresses of nodes, if there are any."""
    dns_ownership: str = ""
    webhooks: int = 0
    """The port of webhooks."""
    garden_webhooks: int = 0
    """The port of the garden's webhooks."""
    page: int = 0
    """The port of the page."""
    monitor: str = ""
    """Where the NATS server tells its own figures."""
    second_calls: bool = False
    """Whether the API server repeats a failed call of a webhook."""
    webhook_spread: float = 120.0
    kinds: tuple[str, ...] = ()
    """The only kinds that are watched here; none: all."""


def settings_file(folder: Path, name: str) -> Path:
    """The settings of a process (`worker-1`), or of the `operator`."""
    return folder / "settings" / f"{name}.yaml"


def kubeconfig(folder: Path, role: str) -> Path:
    """The kubeconfig of a role; `operator` is an administrator."""
    return folder / f"{role}.kubeconfig"


def provider_kubeconfig(folder: Path) -> str:
    """The kubeconfig for the provider Secret of a Shoot whose machines run in this sandbox."""
    return kubeconfigs.inline(kubeconfig(folder, "provider"))


def token_file(folder: Path) -> Path:
    """The tokens of the roles' users, for the API server."""
    return folder / "pki" / "tokens.csv"


def backups(folder: Path) -> Path:
    """The folder of all backup buckets."""
    return folder / "backups"


def write_kubeconfigs(folder: Path, api: ApiServer) -> None:
    roles = [*rbac.RULES, "runner"]
    known = kept_tokens(token_file(folder), map(rbac.user, roles))
    users: dict[str, Pair | str] = {role: known[rbac.user(role)] for role in roles}
    for role, user in {**users, "operator": api.user}.items():
        files.write_private(kubeconfig(folder, role), kubeconfigs.text(api.url, api.ca, user))


def write_settings(around: Surroundings, role: str, name: str, metrics_port: int | None) -> Path:
    """Write the settings of process `name` of `role`. They hold passwords: readable by the owner only."""
    user = "admit" if role == "admission" else role
    webhooks = around.garden_webhooks if role == "admission" else around.webhooks
    settings: dict[str, Any] = {
        "nats": {
            "url": around.bus, "user": user, "password": around.passwords[user], "replicas": around.replicas,
        },
        "objects": {"versions": 16},  # enough to look back with `windowbox trace`
        "cluster": {"kubeconfig": str(kubeconfig(around.folder, role))},
        "egress": {"allowed": ["127.0.0.0/8", "::1/128"]},  # where the sandbox's own API server is
    }  # fmt: skip
    if metrics_port:
        settings["metrics"] = f"127.0.0.1:{metrics_port}"
    settings["webhooks"] = {
        "address": f"127.0.0.1:{webhooks}",
        "mode": "url",
        "url": f"127.0.0.1:{webhooks}",
        "namespace": manifests.SYSTEM_NAMESPACE,
        "second_calls": around.second_calls,
        "spread": around.webhook_spread,
    }
    if role == "ui":
        settings["ui"] = {
            "address": f"127.0.0.1:{around.page}",
            "link_key": _link_key(around.folder),
            "monitor": around.monitor,
        }
    if role in ("runner", "worker", "operator"):
        about: dict[str, Any] = {"servers": [f"127.0.0.1:{around.dns_port}"]}
        if around.dns_key:
            about["key"] = around.dns_key.settings()
        if around.dns_ownership:
            about["ownership"] = around.dns_ownership
        settings["dns"] = {"zones": [{"name": name, **about} for name in zoneserver.ZONES]}
        settings["loadbalancer"] = {
            "ranges": [{"prefixes": list(around.prefixes)}],
            "folder": str(around.folder / "edge"),
        }
        if not around.plan:  # simulated nodes are on this host
            settings["loadbalancer"]["node_networks"] = [{"prefixes": ["0.0.0.0/0", "::/0"]}]
        if not around.kinds:  # else another windowbox serves these
            settings |= _kinds(around)
    if around.kinds:
        settings["watch"] = {"kinds": list(around.kinds)}
    path = settings_file(around.folder, name)
    files.write_private(path, yaml.safe_dump(settings, sort_keys=False))
    return path


def process(around: Surroundings, role: str, name: str, metrics_port: int) -> Child:
    """A `windowbox run`, `watch`, `work`, `patch` or `admit`; ready when its /readyz says so."""
    settings = write_settings(around, role, name, metrics_port)
    return Child(
        name,
        [sys.executable, "-m", "windowbox", *COMMANDS[role], "--settings", str(settings)],
        ready=lambda: controlplane.healthy(f"http://127.0.0.1:{metrics_port}/readyz"),
        port=metrics_port,
        env=processes.python_environment(),
    )


def _link_key(folder: Path) -> str:
    """The key of links to the page, which stays the same while the sandbox runs."""
    path = folder / "page.key"
    if not path.exists():
        files.write_private(path, secrets.token_urlsafe(32))
    return path.read_text()


def _kinds(around: Surroundings) -> dict[str, Any]:
    """The settings of kinds that create objects in this sandbox."""
    networks: dict[str, Any] = {"external": list(around.prefixes)}
    if plan := around.plan:
        # What this machine sends to its nodes comes from its address among them: Envoy's traffic, too.
        host = [f"{plan.host_v4}/32", f"{plan.host_v6}/128"]
        networks |= {
            "node_networks": [str(plan.nodes_v4), str(plan.nodes_v6)],
            "balancers": host,
            "dns": host,
        }
    clouds = {
        "types": list(CLOUD_TYPES),
        "provider": f"{manifests.SYSTEM_NAMESPACE}/{manifests.CLOUDS_SECRET}",
        "image": images.MACHINE_OF_CLOUDS,
    }
    overwrite = around.folder / "images.yaml"
    files.write(overwrite, yaml.safe_dump({"images": _IMAGES}))
    return {
        "clouds": clouds,
        "images": {"overwrite": str(overwrite)},
        "infrastructure": networks,
        "backup": {"root": str(backups(around.folder))},
        "heartbeat": {"namespace": manifests.SYSTEM_NAMESPACE},
    }


def kept_tokens(path: Path, users: Iterable[str]) -> dict[str, str]:
    """The token of each user, from the file at `path`, in the form of `--token-auth-file`."""
    kept = {user: token for token, user, _ in csv.reader(path.open())} if path.exists() else {}
    complete = {user: kept.get(user) or secrets.token_urlsafe(24) for user in users}
    if complete != kept:
        content = io.StringIO()
        csv.writer(content).writerows((token, user, user) for user, token in complete.items())
        files.write_private(path, content.getvalue())
    return complete
