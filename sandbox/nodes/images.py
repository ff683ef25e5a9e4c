"""Container images built from programs of this machine: nothing is pulled."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from sandbox.programs import binaries, openssh
from windowbox.errors import Missing

_LIBRARY = re.compile(r"(/\S+) \(0x")
PROVISIONER = "windowbox.local/local-path-provisioner:1"
MACHINE_OF_CLOUDS = "windowbox.local/machine:clouds"
"""The machine image under one more name: the images of clouds have names of the cloud."""
PAUSE, BUSYBOX, ECHO = (f"windowbox.local/{name}:1" for name in ("pause", "busybox", "echo"))

_PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
_FOREVER = "2147483647"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Image:
    """A name, and files: a path of this machine, or the content, for each path inside."""

    name: str
    files: Mapping[str, Path | str]
    entrypoint: tuple[str, ...] = ()
    """The program that a container always starts, with its arguments appended."""
    command: tuple[str, ...] = ()
    """The default command, or the default arguments of the entry point."""
    links: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    """Other names of the same image."""
    user: str = ""
    """UID:GID of its processes, unless a container names others. Folders in /home belong to it."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """More variables of the environment."""
    stop_signal: str = ""
    """The signal that ends a container; SIGTERM if empty."""


def images() -> list[Image]:
    """The images of every node: `pause` for containerd, `busybox` and `echo` for Pods."""
    places = map(Path, ("/bin/busybox", "/bin/busybox.static", "/usr/bin/busybox"))
    # A program that needs a loader names it in its header.
    static = (path for path in places if path.exists() and b"/ld-" not in path.read_bytes()[:4096])
    busybox = next(static, None)
    if busybox is None:
        raise Missing("a static busybox is not on this machine: run `make setup`, or install busybox-static")
    shell: Mapping[str, Path | str] = {"bin/busybox": busybox, "etc/passwd": _PASSWD}
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, timeout=20, check=True)
    applets = {f"bin/{name}": "busybox" for name in listed.stdout.split() if name != "busybox"}
    return [
        Image(PAUSE, {"bin/busybox": busybox}, entrypoint=("/bin/busybox", "sleep", _FOREVER)),
        Image(BUSYBOX, shell, (), ("sh",), applets, ("tmp", "root", "var", "proc", "sys", "dev")),
        Image(ECHO, {"echo": binaries.find("windowbox-echo")}, entrypoint=("/echo",)),
    ]


def provisioner(program: Path) -> Image:
    """The image of the provisioner of volumes in Shoots."""
    return Image(PROVISIONER, {"usr/bin/local-path-provisioner": program}, folders=("tmp",))


def write(image: Image, path: Path) -> Path:
    """The image as an archive that `ctr images import` and `docker load` take."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The configuration contains the layer's digest and comes first, so the layer is written elsewhere before.
    with tempfile.TemporaryFile(dir=path.parent) as layer, tarfile.open(path, "w") as archive:
        write_layer(image, layer)
        layer.seek(0)
        digest = hashlib.file_digest(layer, "sha256").hexdigest()
        manifest = [
            {"Config": "config.json", "RepoTags": [image.name, *image.aliases], "Layers": ["layer.tar"]}
        ]
        _add(archive, "config.json", json.dumps(config(image, digest)).encode())
        entry = tarfile.TarInfo("layer.tar")
        entry.size = layer.tell()
        layer.seek(0)
        archive.addfile(entry, layer)
        _add(archive, "manifest.json", json.dumps(manifest).encode())
    return path


def config(image: Image, digest: str) -> dict[str, Any]:
    """The image's configuration with its command, and its layer by the digest."""
    return {
        "architecture": binaries.architecture(),
        "os": "linux",
        "config": {
            "Entrypoint": image.entrypoint, "Cmd": image.command, "WorkingDir": "/",
            "Env": [f"{name}={value}" for name, value in {"PATH": _PATH, **image.variables}.items()],
            **({"User": image.user} if image.user else {}),
            **({"StopSignal": image.stop_signal} if image.stop_signal else {}),
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created_by": "windowbox"}],
    }  # fmt: skip


def write_layer(image: Image, content: IO[bytes], time: int | None = None) -> None:
    """The files as a tar; `time` is that of all of them."""
    with tarfile.open(fileobj=content, mode="w") as layer:
        parents = {str(Path(name).parent) for name in (*image.files, *image.links)} - {"."}
        for folder in sorted({*image.folders, *parents}):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            if image.user and folder.startswith("home/"):
                entry.uid, entry.gid = map(int, image.user.split(":"))
            layer.addfile(entry)
        for name, source in image.files.items():
            program = isinstance(source, Path) or source.startswith("#!")
            data = source.read_bytes() if isinstance(source, Path) else source.encode()
            # Python takes bytecode by the time of its source.
            changed = (
                int(source.stat().st_mtime) if isinstance(source, Path) and source.suffix == ".py" else 0
            )
            _add(layer, name, data, program, changed if time is None else time)
        for name, target in image.links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            layer.addfile(entry)


def _add(archive: tarfile.TarFile, name: str, content: bytes, program: bool = False, time: int = 0) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(content), 0o755 if program else 0o644, time
    archive.addfile(entry, io.BytesIO(content))


def shared_libraries(programs: Iterable[Path]) -> dict[str, Path]:
    """Shared libraries of the programs, at the paths where the loader searches."""
    listed = subprocess.run(
        ["ldd", *map(str, programs)], env={**os.environ, "LD_LIBRARY_PATH": openssh.libraries()},
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    return {openssh.inside(Path(path)): Path(path) for path in _LIBRARY.findall(listed.stdout)}
