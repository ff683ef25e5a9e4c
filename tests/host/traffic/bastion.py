"""A Shoot in a sandbox with nodes, with its Infrastructure, and a Bastion to which people log in."""

from __future__ import annotations

import base64
import contextlib
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox import roles
from sandbox.nodes.sshimage import SSH
from tests.api.bastion import bastions
from tests.host.traffic.world import Manifest, World
from tests.support.kindworld import inline, ready, stamp
from windowbox.models.objects import Object
from windowbox.models.refs import BASTIONS, CLUSTERS, INFRASTRUCTURES, NAMESPACES, SECRETS, Resource

SHOOT = "shoot--traffic--ssh"
NAME = "cli"
_PATIENCE = 60
_ANNOTATIONS = ("gardener.cloud/operation", "gardener.cloud/timestamp")

# As gardenctl writes it.
_USER_DATA = """\
#!/bin/bash -eu

id gardener || useradd gardener -mU
mkdir -p /home/gardener/.ssh
echo "{key}" > /home/gardener/.ssh/authorized_keys
chown gardener:gardener /home/gardener/.ssh/authorized_keys
echo "gardener ALL=(ALL) NOPASSWD:ALL" >/etc/sudoers.d/99-gardener-user
systemctl start ssh
"""


@dataclass(frozen=True)
class Key:
    """Of the user, in a folder that is gone after the tests."""

    private: Path

    @classmethod
    def made(cls, folder: Path) -> Key:
        private = folder / "id"
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(private)]
        subprocess.run(command, timeout=60, check=True)
        return cls(private)

    @property
    def user_data(self) -> str:
        public = self.private.with_suffix(".pub").read_text().strip()
        return base64.b64encode(_USER_DATA.format(key=public).encode()).decode()


@dataclass(frozen=True)
class Bastion:
    """One that is there."""

    world: World
    key: Key
    address: str

    def ssh(self, source: str, *command: str) -> list[str]:
        """What to type at `source` for `command` to run on the Bastion."""
        known = self.key.private.with_name("known_hosts")
        return [
            "ssh", "-F", "none", "-T", "-b", source, "-i", str(self.key.private),
            "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", "ConnectTimeout=10",
            "-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={known}", "-o", "LogLevel=ERROR",
            f"gardener@{self.address}", *command,
        ]  # fmt: skip

    def run(self, source: str, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.ssh(source, *command), capture_output=True, text=True, timeout=60, check=False
        )

    @contextlib.contextmanager
    def session(self, source: str) -> Iterator[Session]:
        """Logged in, with a program at the other end that says again what is said to it."""
        with subprocess.Popen(
            self.ssh(source, "cat"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        ) as process:
            try:
                yield Session(process)
            finally:
                process.kill()

    def allow(self, *cidrs: str) -> None:
        """Change who may connect, as clients do, and wait until that is reported as done."""
        annotations = dict(zip(_ANNOTATIONS, ("reconcile", stamp()), strict=True))
        body = {"metadata": {"annotations": annotations}, "spec": {"ingress": blocks(*cidrs)}}
        changed = self.world.merge(BASTIONS.path(SHOOT, NAME), body)
        until(self.world, BASTIONS, NAME, lambda found: bool(_told(found, changed)))


@dataclass(frozen=True)
class Session:
    process: subprocess.Popen[str]

    def goes_on(self) -> bool:
        """Whether what is said comes back."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("still there?\n")
        self.process.stdin.flush()
        return self.process.stdout.readline() == "still there?\n"


def blocks(*cidrs: str) -> list[Manifest]:
    return [{"ipBlock": {"cidr": cidr}} for cidr in cidrs]


@contextlib.contextmanager
def shoot(world: World) -> Iterator[None]:
    """The namespace, the Cluster, the Secret and the Infrastructure of the Shoot."""
    api = world.api
    api.apply(
        NAMESPACES.path("", SHOOT), _manifest(NAMESPACES, SHOOT, labels={"gardener.cloud/role": "shoot"})
    )
    api.apply(CLUSTERS.path("", SHOOT), _manifest(CLUSTERS, SHOOT, spec=_cluster()))
    kubeconfig = inline(roles.kubeconfig(world.folder, "provider").read_bytes())
    data = {"kubeconfig": base64.b64encode(kubeconfig).decode()}
    api.apply(SECRETS.path(SHOOT, "cloudprovider"), _manifest(SECRETS, "cloudprovider", data=data))
    secret = {"name": "cloudprovider", "namespace": SHOOT}
    spec = {"type": "local", "region": "local", "secretRef": secret}
    api.apply(INFRASTRUCTURES.path(SHOOT, "local"), _manifest(INFRASTRUCTURES, "local", spec=spec))
    until(world, INFRASTRUCTURES, "local", ready)
    yield
    world.delete(INFRASTRUCTURES.path(SHOOT, "local"))
    until(world, INFRASTRUCTURES, "local", lambda found: found is None)
    world.delete(CLUSTERS.path("", SHOOT))
    world.delete(NAMESPACES.path("", SHOOT))


def created(world: World, key: Key, *cidrs: str) -> Bastion:
    """A Bastion that is ready."""
    spec = {"type": "local", "userData": key.user_data, "ingress": blocks(*cidrs)}
    annotations = dict(zip(_ANNOTATIONS, ("reconcile", stamp()), strict=True))
    manifest = _manifest(BASTIONS, NAME, annotations=annotations, spec=spec)
    world.api.create(BASTIONS.path(SHOOT), manifest)
    found = until(world, BASTIONS, NAME, ready)
    assert found
    return Bastion(world, key, found.status["ingress"]["ip"])


def until(
    world: World, resource: Resource, name: str, holds: Callable[[Object | None], bool]
) -> Object | None:
    """The object (None if it is not there), once this holds of it."""
    seen: Object | None = None
    path = f"{resource.path(SHOOT)}?fieldSelector=metadata.name={name}"
    if not world.api.read(path)["items"] and holds(None):
        return None
    for event in world.api.events(path, seconds=_PATIENCE):
        seen = None if event["type"] == "DELETED" else Object(event["object"])
        if holds(seen):
            return seen
    raise TimeoutError(f"{name} is not as it should be: {seen and seen.raw}")


def _told(found: Object | None, changed: Manifest) -> bool:
    return ready(found) and found is not None and found.generation >= changed["metadata"]["generation"]


def _cluster() -> Manifest:
    networking = {"nodes": "10.0.0.0/16", "pods": "10.3.0.0/16", "services": "10.4.0.0/16"}
    return {
        "cloudProfile": bastions.cloud_profile(("1.0.0", SSH)),
        "seed": {},
        "shoot": {
            "apiVersion": "core.gardener.cloud/v1beta1",
            "kind": "Shoot",
            "spec": {"credentialsBindingName": "local", "networking": networking},
            "status": {"technicalID": SHOOT},
        },
    }


def _manifest(resource: Resource, name: str, **content: Any) -> Manifest:
    head = {key: content.pop(key) for key in ("labels", "annotations") if key in content}
    version = f"{resource.group}/{resource.version}" if resource.group else resource.version
    return {"apiVersion": version, "kind": resource.kind, "metadata": {"name": name, **head}, **content}
