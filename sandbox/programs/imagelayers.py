"""Takes one program out of an image in a registry, for programs that are published as images only.

https://github.com/opencontainers/distribution-spec and, for tokens,
https://distribution.github.io/distribution/spec/auth/token
"""

from __future__ import annotations

import asyncio
import hashlib
import http
import re
import tarfile
import urllib.parse
from pathlib import Path, PurePosixPath
from typing import Annotated

import aiohttp
from pydantic import BaseModel, Field, ValidationError

from sandbox.programs import web as pages
from sandbox.programs.releases import Image
from sandbox.progress import Job
from windowbox.errors import Missing, Refused

_KINDS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_LARGEST_PAGE = 4 << 20
_MOST_UNPACKED = 2 << 30
_BLOCK = 1 << 18

_Digest = Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]


class _Platform(BaseModel):
    os: str
    architecture: str


class _Described(BaseModel):
    digest: _Digest
    platform: _Platform | None = None


class _Layer(BaseModel):
    digest: _Digest
    kind: str = Field(alias="mediaType", pattern=r"\.tar(\.gzip|\+gzip)?$")
    size: int = Field(le=512 << 20)


class _Manifest(BaseModel):
    """A manifest, or an index of manifests for several platforms."""

    manifests: list[_Described] | None = None
    layers: list[_Layer] = []


class _Token(BaseModel):
    token: str = ""
    access_token: str = ""


class Registry:
    """One image of a registry."""

    def __init__(self, web: aiohttp.ClientSession, image: Image) -> None:
        self._web, self._image = web, image
        self._headers = {"Accept": _KINDS}

    async def digest(self, platform: str) -> str:
        """Of the image's manifest for a platform."""
        return (await self._manifest(platform))[0]

    async def extract(self, platform: str, target: Path, job: Job) -> None:
        """Write the program that is named as `target` to it. Each blob is verified by its digest."""
        image, part = self._image, target.with_suffix(".layer")
        _, manifest = await self._manifest(platform)
        # The program is usually in the last layer, and the first are an operating system.
        for layer in reversed(manifest.layers):
            actual = await pages.save(
                self._web, f"{image.api}/blobs/{layer.digest}", part, job, self._headers
            )
            if f"sha256:{actual}" != layer.digest:
                raise Refused(f"the layer {layer.digest} of {image.url} has the SHA-256 {actual}")
            if await asyncio.to_thread(_unpack, part, target):
                part.unlink()
                return
        raise Missing(f"{image.url} has no program {target.name}")

    async def _manifest(self, platform: str) -> tuple[str, _Manifest]:
        image = self._image
        reference = f"sha256:{image.sha256}" if image.sha256 else image.tag
        await self._authorize(reference)
        digest, found = await self._described(reference)
        if found.manifests is None:
            return digest, found
        system, architecture = platform.split("-")
        wanted = _Platform(os=system, architecture=architecture)
        for one in found.manifests:
            if one.platform == wanted:
                return await self._described(one.digest)
        raise Missing(f"{image.url} has no image for {system}/{architecture}")

    async def _authorize(self, reference: str) -> None:
        """Get an anonymous token, if the registry wants one."""
        url = f"{self._image.api}/manifests/{reference}"
        async with pages.opened(self._web, url, self._headers, status=600) as answer:
            if answer.status != http.HTTPStatus.UNAUTHORIZED:
                return
            asked = answer.headers.get("WWW-Authenticate", "")
        scheme, _, rest = asked.partition(" ")
        values = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        realm = values.get("realm", "")
        if scheme.lower() != "bearer" or not realm.startswith(("https://", url.partition("/")[0])):
            raise Refused(f"{self._image.url}: no anonymous token: {asked}")
        query = urllib.parse.urlencode({key: values[key] for key in ("service", "scope") if key in values})
        try:
            got = _Token.model_validate_json(await pages.read(self._web, f"{realm}?{query}", _LARGEST_PAGE))
        except ValidationError as error:
            raise Refused(f"{realm}: no token: {_first(error)}") from error
        self._headers["Authorization"] = f"Bearer {got.token or got.access_token}"

    async def _described(self, reference: str) -> tuple[str, _Manifest]:
        """An index or manifest and its digest, verified if it is asked for by it."""
        url = f"{self._image.api}/manifests/{reference}"
        content = await pages.read(self._web, url, _LARGEST_PAGE, self._headers)
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        if reference.startswith("sha256:") and digest != reference:
            raise Refused(f"{url} has the digest {digest}")
        try:
            return digest, _Manifest.model_validate_json(content)
        except ValidationError as error:
            raise Refused(f"{url} cannot be used: {_first(error)}") from error


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _unpack(layer: Path, target: Path) -> bool:
    """Write the program with the name of `target` in `layer` to it; whether there is one."""
    unpacked = 0
    try:
        with tarfile.open(layer, mode="r|*") as files:
            for entry in files:
                unpacked += entry.size
                if unpacked > _MOST_UNPACKED:
                    raise Refused(f"{layer.name}: more than {_MOST_UNPACKED >> 30} GiB")
                is_program = entry.isfile() and entry.mode & 0o111
                if not is_program or PurePosixPath(entry.name).name != target.name:
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
