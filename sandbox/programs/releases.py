"""Where official binaries of the programs are published, and their pinned SHA-256.

Kubernetes publishes `<binary>.sha256` beside each binary; etcd, nats-server and helm publish archives, and
their sums. Others publish container images only. deploy/binaries/releases.json has the places.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandbox import shipped
from sandbox.programs import binaries
from sandbox.programs.binaries import Program

FILE = shipped.MODULES / "releases.json"


@dataclass(frozen=True)
class Release:
    """Where a program is published: a binary or an archive, and its checksum."""

    source: str
    base: str
    url: str
    sums: str
    sha256: str | None
    """Pinned: the sum that is published is not asked for."""
    member: str = ""
    """Its path in the archive; empty if it comes as it is."""

    @property
    def ping(self) -> str:
        """What is asked for to see whether the place answers."""
        return self.url if self.sha256 else self.sums


@dataclass(frozen=True)
class Image:
    """An image in a registry that contains the program."""

    source: str
    base: str
    api: str
    """Of the registry, up to the repository."""
    tag: str
    sha256: str | None
    """Pinned: the digest of its manifest for the platform."""

    @property
    def url(self) -> str:
        return f"{self.base}/{self.api.rpartition('/')[2]}:{self.tag}"

    @property
    def ping(self) -> str:
        return f"{self.api.partition('/v2/')[0]}/v2/"


def setting(source: str) -> str:
    """The environment variable that names a mirror of the official place."""
    return f"WINDOWBOX_RELEASES_{source.upper().replace('-', '_')}"


def find(program: Program, platform: str = "") -> Release | Image | None:
    """Where `program` is published for a platform, by default this machine; None if it is not."""
    platform = platform or f"{sys.platform}-{binaries.architecture()}"
    for source, about in known().items():
        pins = about["programs"].get(program.name, {})
        if platform in pins:
            # Pins are of one version; tests ask for others, too.
            pin = pins[platform] if about["version"] == program.version else None
            base = os.environ.get(setting(source), about["base"]).rstrip("/")
            if "image" in about:
                url = urllib.parse.urlsplit(f"{base}/{about['image']}")
                api = f"{url.scheme}://{url.netloc}/v2{url.path}"
                return Image(source, base, api, f"v{program.version}", pin)
            system, architecture = platform.split("-")
            values = {
                "version": program.version, "system": system, "architecture": architecture,
                "name": program.name,
            }  # fmt: skip
            file, sums, member = (about.get(key, "").format(**values) for key in ("file", "sums", "member"))
            return Release(source, base, f"{base}/{file}", f"{base}/{sums}", pin, member)
    return None


@functools.cache
def known() -> Mapping[str, Mapping[str, Any]]:
    """What deploy/binaries/releases.json says, by source."""
    found: Mapping[str, Mapping[str, Any]] = json.loads(FILE.read_text())
    return found
