"""Takes one program out of an image in a registry, for programs that are published as images only.

https://github.com/opencontainers/distribution-spec; tokens as https://distribution.github.io/distribution/spec/auth/token
"""

from __future__ import annotations

import asyncio
import hashlib
import http
import json
import re
import tarfile
import urllib.parse
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import aiohttp

from sandbox.programs import web as pages
from sandbox.programs.releases import Image
from sandbox.progress import Job
from windowbox.errors import Missing, Refused

_INDEXES = (
    "application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"
)  # fmt: skip
_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"
)  # fmt: skip
_LAYERS = re.compile(r".*(\+gzip|\.tar\.gzip|\.tar)$")
_LARGEST_PAGE = 4 << 20
_LARGEST_LAYER = 512 << 20
_MOST_UNPACKED = 2 << 30
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_BLOCK = 1 << 18


async def manifest(
    web: aiohttp.ClientSession, image: Image, platform: str
) -> tuple[str, Mapping[str, Any], Mapping[str, str]]:
    """The digest of the image's manifest for a platform, the manifest, and headers for its layers."""
    reference = f"sha256:{image.sha256}" if image.sha256 else image.tag
    headers = await _authorized(web, image, f"{image.api}/manifests/{reference}")
    digest, found = await _described(web, image, reference, headers)
    if "manifests" in found:
        system, architecture = platform.split("-")
        wanted = {"os": system, "architecture": architecture}
        suitable = [
            one["digest"] for one in found["manifests"] if wanted.items() <= one.get("platform", {}).items()
        ]
        if not suitable:
            raise Missing(f"{image.url} has no image for {system}/{architecture}")
        digest, found = await _described(web, image, suitable[0], headers)
    return digest, found, headers


async def extract(
    web: aiohttp.ClientSession, image: Image, platform: str, target: Path, job: Job
) -> None:  # fmt: skip
    """Write the program that is named as `target` to it. Each blob is verified by its digest."""
    _, found, headers = await manifest(web, image, platform)
    part = target.with_suffix(".layer")
    # The program is usually in the last layer, and the first are an operating system.
    for layer in reversed(found["layers"]):
        digest, size = layer["digest"], layer["size"]
        if (
            not _LAYERS.fullmatch(layer["mediaType"])
            or not _DIGEST.fullmatch(digest)
            or size > _LARGEST_LAYER
        ):
            raise Refused(f"{image.url}: its layer {digest} is of no kind or size that could be unpacked")
        actual = await pages.save(web, f"{image.api}/blobs/{digest}", part, job, headers)
        if f"sha256:{actual}" != digest:
            raise Refused(f"the layer {digest} of {image.url} has the SHA-256 {actual}")
        if await asyncio.to_thread(_unpack, part, target):
            part.unlink()
            return
    raise Missing(f"{image.url} has no file {target.name}")


async def _authorized(web: aiohttp.ClientSession, image: Image, url: str) -> dict[str, str]:
    """The headers of requests: with an anonymous token, if the registry wants one."""
    headers = {"Accept": ", ".join((*_INDEXES, *_MANIFESTS))}
    async with pages.opened(web, url, headers, status=600) as answer:
        if answer.status != http.HTTPStatus.UNAUTHORIZED:
            return headers
        asked = answer.headers.get("WWW-Authenticate", "")
    scheme, _, rest = asked.partition(" ")
    values = dict(re.findall(r'(\w+)="([^"]*)"', rest))
    realm = values.pop("realm", "")
    if scheme.lower() != "bearer" or not realm.startswith(("https://", f"{url.partition('://')[0]}://")):
        raise Refused(f"{image.url}: asks for {scheme or 'no known kind of'} authentication")
    query = urllib.parse.urlencode({key: values[key] for key in ("service", "scope") if key in values})
    got = _parsed(realm, await pages.read(web, f"{realm}?{query}", _LARGEST_PAGE))
    return {**headers, "Authorization": f"Bearer {got.get('token') or got.get('access_token')}"}


async def _described(
    web: aiohttp.ClientSession, image: Image, reference: str, headers: Mapping[str, str]
) -> tuple[str, Mapping[str, Any]]:
    """An index or manifest, verified if it is asked for by its digest."""
    url = f"{image.api}/manifests/{reference}"
    content = await pages.read(web, url, _LARGEST_PAGE, headers)
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if _DIGEST.fullmatch(reference) and digest != reference:
        raise Refused(f"{url} has the digest {digest}")
    return digest, _parsed(url, content)


def _parsed(url: str, content: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(content)
    except ValueError as error:
        raise Refused(f"{url} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise Refused(f"{url} is no object of JSON")
    return found


def _unpack(layer: Path, target: Path) -> bool:
    """Write the file with the name of `target` in `layer` to it; whether there is one."""
    unpacked = 0
    try:
        with tarfile.open(layer, mode="r|*") as files:
            for entry in files:
                unpacked += entry.size
                if unpacked > _MOST_UNPACKED:
                    raise Refused(f"{layer.name}: more than {_MOST_UNPACKED >> 30} GiB")
                if not (
                    entry.isfile() and entry.mode & 0o111 and PurePosixPath(entry.name).name == target.name
                ):
                    continue
                source = files.extractfile(entry)
                assert source is not None
                with source, target.open("wb") as file:
                    while block := source.read(_BLOCK):
                        file.write(block)
                return True
    except (tarfile.TarError, OSError, EOFError) as error:
        raise Refused(f"{layer.name} cannot be unpacked: {error}") from error
    return False
