"""The image of a machine that becomes a node, made from programs of this host; built once, and cached.

A container of it boots as a machine does: a small init of our own, in place of systemd, runs the user data at
`/etc/machine/userdata` and starts units. See deploy/machine.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
from pathlib import Path

from sandbox import shipped
from sandbox.nodes import images
from sandbox.nodes.images import Image
from sandbox.programs import binaries, packages
from sandbox.progress import Progress
from windowbox.errors import Missing

_FOLDER = "etc/containerd/certs.d"
_DOMAIN = "local.gardener.cloud:5001"
_CACHES = {
    "gcr.io": "gcr",
    "registry.k8s.io": "k8s",
    "quay.io": "quay",
    "europe-docker.pkg.dev": "europe-docker-pkg-dev",
}
"""The cache of each registry. Without a cache, containerd asks the registry itself."""
VERSIONS = ("1.0.0", "1.1.0")
"""Two names of one image, so that machines can be replaced by machines of another version."""

PROVISIONER = "local-path-provisioner"
_NAME = "windowbox.local/machine"
_KUBERNETES = ("kubelet", "kube-proxy", "kubectl")
PROGRAMS = (*_KUBERNETES, PROVISIONER)
"""Programs of the image that a machine may lack."""
_SYSTEM = ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "nft", "ip", "bash", "mount", "umount")
_PLUGINS = ("bridge", "host-local", "loopback")
_SCRIPTS = {
    "init": "usr/lib/machine/init",
    "unit": "usr/lib/machine/unit",
    "import-images": "usr/lib/machine/import-images",
    "node-agent-simulator": "usr/lib/machine/node-agent-simulator",
    "systemctl": "usr/bin/systemctl",
    "journalctl": "usr/bin/journalctl",
}
_TEXTS = {
    "containerd.service": "lib/systemd/system/containerd.service",
    "config.toml": "etc/containerd/config.toml",
}
_INNER = "usr/share/machine/images"
"""The images of the machine's own Pods."""
_ETC = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/os-release": 'NAME="windowbox machine"\nID=windowbox\nPRETTY_NAME="windowbox machine"\n',
}
_FOLDERS = (
    "tmp", "root", "proc", "sys", "dev", "run", "etc/systemd/system", "var/log", "var/lib", "lib/modules",
)  # fmt: skip


def archive(progress: Progress) -> tuple[Path, str]:
    """The image as an archive in the user's cache, built if it is not there; and its name."""
    image = _image()
    path = binaries.cache() / "machines" / f"{image.name.rpartition(':')[2]}.tar"
    if path.exists():
        return path, image.name
    with binaries.cache_lock("machines", progress):
        if path.exists():  # the former holder of the lock built it
            return path, image.name
        with progress.job("machine image", "packing programs of this host", "built"):
            shutil.rmtree(path.parent, ignore_errors=True)  # former versions
            path.parent.mkdir(parents=True)
            inner = path.with_suffix(".images")
            packed = [*images.images(), images.provisioner(binaries.find(PROVISIONER))]
            kept = {
                f"{_INNER}/{one.name.partition('/')[2].replace(':', '-')}.tar": images.write(
                    one, inner / str(n)
                )
                for n, one in enumerate(packed)
            }
            whole = dataclasses.replace(image, files={**image.files, **kept})
            # A rename, so that an interrupted build leaves no incomplete archive.
            images.write(whole, path.with_suffix(".new")).replace(path)
            shutil.rmtree(inner)
    return path, image.name


def of_version(name: str, version: str) -> str:
    """The name of the image `name` in this version."""
    return f"{name}-{version}"


def impossible() -> str:
    """What this host lacks for the image; empty if nothing."""
    try:
        _image()
    except Missing as error:
        return str(error)
    return ""


def _image() -> Image:
    """The image but for the images in it."""
    shell = next(image for image in images.images() if image.name == images.BUSYBOX)
    kubernetes = {name: binaries.find(name) for name in _KUBERNETES}
    system = {name: Path(path) for name in _SYSTEM if (path := packages.which(name))}
    for name in _SYSTEM:
        if name not in system:
            raise Missing(f"{name} is not on this machine, and Shoots' machines need it: run `make setup`")
    plugins = {name: packages.plugins() / name for name in _PLUGINS}
    programs = {
        **{f"usr/bin/{name}": path for name, path in {**kubernetes, **system}.items()},
        **{f"opt/cni/bin/{name}": path for name, path in plugins.items()},
    }
    scripts = {inside: shipped.MACHINE / name for name, inside in _SCRIPTS.items()}
    texts = {inside: (shipped.MACHINE / name).read_text() for name, inside in _TEXTS.items()}
    provisioner = binaries.find(PROVISIONER)
    mine = {Path(name).name for name in (*programs, *scripts)}
    image = Image(
        _NAME,
        {
            **shell.files,
            **_ETC,
            **registry_files(),
            **programs,
            **scripts,
            **texts,
            **images.shared_libraries(programs.values()),
        },
        entrypoint=("/usr/lib/machine/init",),
        links={
            "bin/bash": "/usr/bin/bash",
            "var/run": "/run",
            "lib/systemd/system/multi-user.target.wants/containerd.service": "../containerd.service",
            **{name: target for name, target in shell.links.items() if Path(name).name not in mine},
        },
        folders=(*shell.folders, *_FOLDERS),
    )
    name = f"{_NAME}:{_digest(image, provisioner)}"
    return dataclasses.replace(
        image,
        name=name,
        aliases=(*(of_version(name, version) for version in VERSIONS), images.MACHINE_OF_CLOUDS),
    )


def _digest(image: Image, provisioner: Path) -> str:
    """A digest of every file of the image; of programs, only the size and time are read."""
    digest = hashlib.sha256(
        repr(
            (
                image.name,
                VERSIONS,
                images.MACHINE_OF_CLOUDS,
                image.entrypoint,
                sorted(image.links.items()),
                image.folders,
            )
        ).encode()
    )
    for name, source in sorted({**image.files, PROVISIONER: provisioner}.items()):
        if isinstance(source, Path) and source.parent != shipped.MACHINE:
            found = os.stat(source)
            digest.update(f"{name} {source} {found.st_size} {found.st_mtime_ns}".encode())
        else:
            text = source.read_text() if isinstance(source, Path) else source
            digest.update(f"{name} {text}".encode())
    return digest.hexdigest()[:16]


def registry_files() -> dict[str, str]:
    """The configuration of containerd's mirrors, by paths in an image."""
    own = f"http://registry.{_DOMAIN}"
    mirrors = {f"registry.{_DOMAIN}": (own, own)}
    for registry, cache in _CACHES.items():
        mirrors[registry] = (f"https://{registry}", f"http://{cache}.registry-cache.{_DOMAIN}")
    return {
        f"{_FOLDER}/{registry}/hosts.toml": (
            f'server = "{server}"\n\n[host."{mirror}"]\n  capabilities = ["pull", "resolve"]\n'
        )
        for registry, (server, mirror) in mirrors.items()
    }
