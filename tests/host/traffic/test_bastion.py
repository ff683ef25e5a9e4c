"""People log in to a Bastion: through the load balancer, to an SSH server in a Pod on a real node."""

from __future__ import annotations

import base64
import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sandbox import roles
from sandbox.nodes import sshimage
from tests.api.bastion import bastions
from tests.host.traffic.world import Manifest, World
from tests.support import echoclient
from tests.support.kindworld import inline, ready, stamp
from tests.support.rules import rule
from windowbox.models.objects import Object
from windowbox.models.refs import BASTIONS, CLUSTERS, INFRASTRUCTURES, NAMESPACES, SECRETS, Resource

SHOOT = "shoot--traffic--ssh"
NAME = "cli"

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


def new_key(folder: Path) -> Path:
    """A private key of the user, beside the public one."""
    private = folder / "id"
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(private)]
    subprocess.run(command, timeout=60, check=True)
    return private


@dataclass(frozen=True)
class Bastion:
    """A Bastion that is ready."""

    world: World
    key: Path
    address: str

    def ssh(self, source: str, *command: str) -> list[str]:
        """The command that runs `command` on the Bastion, and ends if the Bastion stops responding."""
        known = self.key.with_name("known_hosts")
        return [
            "ssh", "-F", "none", "-T", "-b", source, "-i", str(self.key),
            "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", "ConnectTimeout=10",
            "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=2",
            "-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={known}", "-o", "LogLevel=ERROR",
            f"gardener@{self.address}", *command,
        ]  # fmt: skip

    def run(self, source: str, *command: str) -> subprocess.CompletedProcess[str]:
        argv = self.ssh(source, *command)
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    def admits(self, source: str) -> bool:
        """Whether a client can log in."""
        try:
            return self.run(source, "echo in").stdout == "in\n"
        except subprocess.TimeoutExpired:  # before it has logged in, `ssh` may wait for ever
            return False

    def outcome(self, source: str) -> str:
        return echoclient.outcome(self.address, 22, source=source)

    @contextlib.contextmanager
    def session(self, source: str) -> Iterator[Callable[[], bool]]:
        """A session that runs `cat` on the Bastion; yields a check that it still echoes."""
        with subprocess.Popen(
            self.ssh(source, "cat"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        ) as process:

            def goes_on() -> bool:
                assert process.stdin
                assert process.stdout
                process.stdin.write("still there?\n")
                process.stdin.flush()
                return process.stdout.readline() == "still there?\n"

            try:
                yield goes_on
            finally:
                process.kill()

    def allow(self, *cidrs: str) -> None:
        """Change the allowed ranges as clients do, and wait until the Bastion is ready again."""
        body = {"metadata": {"annotations": _asking()}, "spec": {"ingress": blocks(*cidrs)}}
        changed = self.world.merge(BASTIONS.path(SHOOT, NAME), body)["metadata"]["generation"]
        until(self.world, BASTIONS, NAME, lambda found: ready(found) and _generation(found) >= changed)


def blocks(*cidrs: str) -> list[Manifest]:
    return [{"ipBlock": {"cidr": cidr}} for cidr in cidrs]


@contextlib.contextmanager
def shoot(world: World) -> Iterator[None]:
    """The namespace, the Cluster, the Secret and the Infrastructure of the Shoot."""
    api = world.api
    labels = {"gardener.cloud/role": "shoot"}
    api.apply(NAMESPACES.path("", SHOOT), _manifest(NAMESPACES, SHOOT, labels=labels))
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


def created(world: World, key: Path, *cidrs: str) -> Bastion:
    """A Bastion that is ready."""
    user_data = _USER_DATA.format(key=key.with_suffix(".pub").read_text().strip())
    encoded = base64.b64encode(user_data.encode()).decode()
    spec = {"type": "local", "userData": encoded, "ingress": blocks(*cidrs)}
    world.api.create(BASTIONS.path(SHOOT), _manifest(BASTIONS, NAME, annotations=_asking(), spec=spec))
    found = until(world, BASTIONS, NAME, ready)
    assert found
    return Bastion(world, key, found.status["ingress"]["ip"])


def until(
    world: World, resource: Resource, name: str, holds: Callable[[Object | None], bool]
) -> Object | None:
    """The object (None if it is not there), once this holds of it."""
    found = world.until(resource.path(SHOOT), name, lambda found: holds(Object(found) if found else None))
    return Object(found) if found else None


def _generation(found: Object | None) -> int:
    return found.generation if found else 0


def _asking() -> dict[str, str]:
    """The annotations with which clients ask for a run."""
    return {"gardener.cloud/operation": "reconcile", "gardener.cloud/timestamp": stamp()}


def _cluster() -> Manifest:
    networking = {"nodes": "10.0.0.0/16", "pods": "10.3.0.0/16", "services": "10.4.0.0/16"}
    return {
        "cloudProfile": bastions.cloud_profile(("1.0.0", sshimage.SSH)),
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


_STAYS, _GOES, _COMES, _NEVER = "127.9.31.1", "127.9.31.130", "127.9.32.1", "127.9.33.1"


@pytest.fixture(scope="module")
def reached(traffic: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bastion]:
    """A Bastion that admits 127.9.31.0/24."""
    if not sshimage.found() or not shutil.which("ssh"):
        pytest.skip("OpenSSH is not on this machine: install openssh-server and openssh-client")
    key = new_key(tmp_path_factory.mktemp("ssh"))
    with shoot(traffic):
        made = created(traffic, key, "127.9.31.0/24")
        echoclient.becomes(True, partial(made.admits, _STAYS))
        yield made


@rule("BA-2", "BA-3", "BA-6", "B.5")
def test_an_allowed_client_logs_in_with_its_key(reached: Bastion) -> None:
    done = reached.run(_STAYS, "whoami; cat /etc/machine/userdata")
    assert done.stdout.splitlines()[:2] == ["gardener", "#!/bin/bash -eu"]


def test_another_key_is_refused(reached: Bastion, tmp_path_factory: pytest.TempPathFactory) -> None:
    stranger = Bastion(reached.world, new_key(tmp_path_factory.mktemp("stranger")), reached.address)
    done = stranger.run(_STAYS, "whoami")
    assert (done.returncode, done.stdout) == (255, "")
    assert "Permission denied" in done.stderr


@rule("BA-5", "B.5")
def test_clients_outside_the_ranges_get_no_byte(reached: Bastion) -> None:
    assert [reached.outcome(_NEVER) for _ in range(3)] == ["closed"] * 3
    done = reached.run(_NEVER, "whoami")
    assert (done.returncode, done.stdout) == (255, "")


@rule("BA-5", "B.5")
def test_a_session_outlives_a_change_that_still_lets_it_in(reached: Bastion) -> None:
    with reached.session(_STAYS) as goes_on:
        assert goes_on()
        assert reached.admits(_GOES)
        reached.allow("127.9.31.0/25", f"{_COMES}/32")
        echoclient.becomes(True, partial(reached.admits, _COMES))
        echoclient.becomes("closed", partial(reached.outcome, _GOES))
        assert goes_on()
        assert reached.outcome(_NEVER) == "closed"
        assert goes_on()


@rule("BA-4")
def test_a_deleted_bastion_leaves_nothing(reached: Bastion) -> None:
    world = reached.world
    world.delete(BASTIONS.path(SHOOT, NAME))
    until(world, BASTIONS, NAME, lambda found: found is None)
    for kind in ("pods", "services", "secrets"):
        assert world.api.read(f"/api/v1/namespaces/infra-{SHOOT}/{kind}")["items"] == []
    echoclient.becomes("refused", partial(reached.outcome, _STAYS))
