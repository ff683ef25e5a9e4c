"""Which Shoots a sandbox has: one folder each, from which its supervisor derives their processes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection
from pathlib import Path

from pydantic import BaseModel, ValidationError

from sandbox import files, processes
from windowbox.errors import Malformed, Missing, Refused

_NAME = re.compile(r"[a-z]([a-z0-9-]{0,14}[a-z0-9])?")
_ENDED = "ended.json"
_HIBERNATED = "hibernated"
"""A file: the control plane of the Shoot does not run."""
_SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


class Shoot(BaseModel, frozen=True):
    """A Shoot of the sandbox."""

    name: str
    ports: dict[str, int]
    """Of the processes of its control plane."""
    cloud: str = ""
    """Its type, if that is not local."""

    @property
    def technical_id(self) -> str:
        """The namespace of its control plane."""
        return f"shoot--local--{self.name}"

    @property
    def machines(self) -> str:
        """The namespace of its machine Pods."""
        return f"infra-{self.technical_id}"

    @property
    def etcd_prefix(self) -> str:
        return f"/shoots/{self.name}/"

    def child(self, process: str) -> str:
        """The name of a process among the children of the sandbox."""
        return f"shoot-{self.name}/{process}"


def new(name: str, taken: Collection[int], cloud: str = "") -> Shoot:
    """A Shoot with free ports, besides those that are `taken`."""
    check_name(name)
    ports: dict[str, int] = {}
    for server in _SERVERS:
        port = processes.free_port()
        while port in (*taken, *ports.values()):
            port = processes.free_port()
        ports[server] = port
    return Shoot(name=name, ports=ports, cloud=cloud)


def check_name(name: str) -> None:
    # Names of machine Pods contain it, and are host names, of 63 characters at most.
    if not _NAME.fullmatch(name) or "--" in name:
        raise Malformed(
            f"shoot name {name!r}: use at most 16 lower-case letters, digits and dashes, a letter first"
        )


def check_new(sandbox: Path, name: str) -> None:
    """Refuse a name that is malformed or taken."""
    check_name(name)
    if name in all_names(sandbox):
        raise Refused(f"the shoot {name!r} exists already: `windowbox shoot delete {name}` removes it")


def folder(sandbox: Path, name: str) -> Path:
    """The data of a Shoot: certificates, kubeconfigs, ranges."""
    check_name(name)
    return sandbox / "shoots" / name


def kubeconfig(sandbox: Path, name: str) -> Path:
    """The kubeconfig of an administrator of the Shoot."""
    return folder(sandbox, name) / "admin.kubeconfig"


def names(sandbox: Path) -> list[str]:
    """The Shoots, also those that are hibernated."""
    return sorted(path.parent.name for path in sandbox.glob("shoots/*/shoot.json"))


def awake_names(sandbox: Path) -> list[str]:
    """The Shoots whose control plane runs."""
    return [name for name in names(sandbox) if not is_hibernated(sandbox, name)]


def all_names(sandbox: Path) -> list[str]:
    """Also those whose deletion was interrupted."""
    return sorted(path.name for path in sandbox.glob("shoots/*"))


def read(sandbox: Path, name: str) -> Shoot:
    """The Shoot `name`; Missing if there is none."""
    path = _file(sandbox, name)
    if not path.exists():
        path = path.with_name(_ENDED)
    try:
        return Shoot.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        known = ", ".join(names(sandbox)) or "none"
        raise Missing(f"the sandbox {sandbox.name!r} has no shoot {name!r}; it has: {known}") from None
    except ValidationError as error:
        raise Malformed(f"{path} is from another version of windowbox: `windowbox down --wipe`") from error


def write(sandbox: Path, shoot: Shoot) -> None:
    files.write(_file(sandbox, shoot.name), shoot.model_dump_json(indent=2))


def forget(sandbox: Path, name: str) -> None:
    """Have the supervisor end the processes of the Shoot. Its data stays until `remove`."""
    path = _file(sandbox, name)
    if path.exists():
        path.replace(path.with_name(_ENDED))


def is_hibernated(sandbox: Path, name: str) -> bool:
    return (folder(sandbox, name) / _HIBERNATED).exists()


def hibernate(sandbox: Path, name: str) -> None:
    """Have the supervisor end the processes of the Shoot until `wake`."""
    (folder(sandbox, name) / _HIBERNATED).touch()


def wake(sandbox: Path, name: str) -> None:
    """Have the supervisor start the processes of the Shoot again."""
    (folder(sandbox, name) / _HIBERNATED).unlink(missing_ok=True)


def remove(sandbox: Path, name: str) -> None:
    shutil.rmtree(folder(sandbox, name), ignore_errors=True)


def _file(sandbox: Path, name: str) -> Path:
    return folder(sandbox, name) / "shoot.json"
