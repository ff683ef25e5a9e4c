"""A registry to pull from: images assembled from programs of this machine, and Helm charts.

It speaks the pull part of the OCI distribution specification, over plain HTTP. An image is assembled when it
is first asked for, and kept in files by digest.

    python -m tools.gardener.registry     # as a companion of a sandbox, whose variables it reads
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import logging
import os
import signal
import tarfile
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

import yaml
from aiohttp import web

from sandbox import files
from sandbox.nodes import images as imagefiles
from sandbox.nodes.images import Image
from tools.gardener import contents
from tools.gardener.contents import Chart
from windowbox.errors import WindowboxError

logger = logging.getLogger(__name__)

PORT = 5001
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_CHART_CONFIG = "application/vnd.cncf.helm.config.v1+json"
_CHART_LAYER = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"

_MOST_REQUESTS = 64
"""At a time; others wait."""
_PATIENCE = 600.0
"""For one request: a layer may have some hundred megabytes, and the disk be busy."""
_IDLE = 30.0
_FAREWELL = 1.0
"""For requests that are being answered at the end: containerd repeats them."""
_LONGEST_BODY = 4096

Content = Image | Chart
Find = Callable[[str, str], Content | None]
"""What a repository, with the name of its host, has under a tag."""


class Store:
    """Manifests and blobs in files named by digest."""

    def __init__(self, folder: Path) -> None:
        self._blobs = folder / "blobs"
        self._built = folder / "built"
        self._blobs.mkdir(parents=True, exist_ok=True)

    def find(self, digest: str) -> Path | None:
        """The file with this digest."""
        algorithm, _, number = digest.partition(":")
        if algorithm != "sha256" or len(number) != 64 or not set(number) <= set("0123456789abcdef"):
            return None
        path = self._blobs / number
        return path if path.exists() else None

    def manifest(self, content: Content) -> str:
        """The digest of the content's manifest. Assembles it if it is new, or its files have changed."""
        note = self._built / _fingerprint(content)
        if note.exists() and self.find(kept := note.read_text()):
            return kept
        if isinstance(content, Chart):
            layer = self._keep(partial(_write_chart, content))
            config = yaml.safe_load((content.folder / "Chart.yaml").read_text())
            digest = self._keep_manifest(_CHART_CONFIG, config, _CHART_LAYER, layer)
        else:
            layer = self._keep(partial(imagefiles.write_layer, content))
            config = imagefiles.config(content, layer["digest"].removeprefix("sha256:"))
            digest = self._keep_manifest(_CONFIG, config, _LAYER, layer)
        files.write(note, digest)
        return digest

    def _keep_manifest(self, config_type: str, config: object, layer_type: str, layer: dict[str, Any]) -> str:
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": {"mediaType": config_type, **self._keep(partial(_write_json, config))},
            "layers": [{"mediaType": layer_type, **layer}],
        }
        digest: str = self._keep(partial(_write_json, manifest))["digest"]
        return digest

    def _keep(self, write: Callable[[IO[bytes]], None]) -> dict[str, Any]:
        """The digest and size of a new file with what `write` writes."""
        with tempfile.NamedTemporaryFile(dir=self._blobs, delete=False) as file:
            try:
                write(file)
                file.flush()
                size = file.tell()
                file.seek(0)
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                os.replace(file.name, self._blobs / digest)
            except BaseException:
                os.unlink(file.name)
                raise
        return {"digest": f"sha256:{digest}", "size": size}


class Registry:
    """Answers for one store and one table of contents."""

    def __init__(self, store: Store, find: Find) -> None:
        self._store = store
        self._find = find
        self._assembling = asyncio.Lock()
        """One at a time: it is work for a disk and a CPU."""
        self._requests = asyncio.Semaphore(_MOST_REQUESTS)

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._bounded], client_max_size=_LONGEST_BODY)
        app.router.add_get("/v2/", self._version)
        app.router.add_get("/v2/{name:.+}/manifests/{reference}", self._manifest)
        app.router.add_get("/v2/{name:.+}/blobs/{digest}", self._blob)
        return app

    @web.middleware
    async def _bounded(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            async with asyncio.timeout(_PATIENCE), self._requests:
                return await handler(request)
        except web.HTTPMethodNotAllowed:
            return _refusal(405, "UNSUPPORTED", "one can only pull")
        except web.HTTPNotFound:
            return _refusal(404, "NAME_UNKNOWN", f"{request.path}: there is nothing here")
        except WindowboxError as error:
            logger.error("%s: %s", request.path_qs, error)
            return _refusal(500, "UNKNOWN", str(error))

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({}, headers={"Docker-Distribution-API-Version": "registry/2.0"})

    async def _manifest(self, request: web.Request) -> web.StreamResponse:
        reference = request.match_info["reference"]
        if ":" in reference:
            digest = reference
        else:
            # A mirror is told whose images it stands for; without that, it is asked for its own.
            repository = f"{request.query.get('ns', request.host)}/{request.match_info['name']}"
            content = await asyncio.to_thread(self._find, repository, reference)
            if content is None:
                logger.warning("%s:%s is not here", repository, reference)
                return _refusal(404, "MANIFEST_UNKNOWN", f"{repository}:{reference} is not here")
            async with self._assembling:
                digest = await asyncio.to_thread(self._store.manifest, content)
        return self._file(digest, "MANIFEST_UNKNOWN", _MANIFEST)

    async def _blob(self, request: web.Request) -> web.StreamResponse:
        return self._file(request.match_info["digest"], "BLOB_UNKNOWN", "application/octet-stream")

    def _file(self, digest: str, code: str, media_type: str) -> web.StreamResponse:
        path = self._store.find(digest)
        if path is None:
            return _refusal(404, code, f"{digest} is not here")
        return web.FileResponse(path, headers={"Content-Type": media_type, "Docker-Content-Digest": digest})


def _refusal(status: int, code: str, message: str) -> web.Response:
    return web.json_response({"errors": [{"code": code, "message": message}]}, status=status)


def _fingerprint(content: Content) -> str:
    """Changes with the content, without reading all of it: a file counts by its time and size."""
    if isinstance(content, Chart):
        sources = [(str(path), path) for path in sorted(content.folder.rglob("*")) if path.is_file()]
        rest = repr(content)
    else:
        sources = [(name, path) for name, path in content.files.items() if isinstance(path, Path)]
        rest = repr(content)
    stats = [(name, str(path), path.stat().st_mtime_ns, path.stat().st_size) for name, path in sources]
    return hashlib.sha256(repr((rest, stats)).encode()).hexdigest()


def _write_chart(chart: Chart, content: IO[bytes]) -> None:
    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        # The same files make the same archive, whoever owns them.
        mode = 0o755 if entry.isdir() else 0o644
        return entry.replace(mtime=0, mode=mode, uid=0, gid=0, uname="", gname="", deep=False)

    with (
        gzip.GzipFile(filename="", fileobj=content, mode="wb", mtime=0) as packed,
        # Our own charts have links to files that other parts use, too.
        tarfile.open(fileobj=packed, mode="w", dereference=True) as archive,
    ):
        archive.add(chart.folder, chart.name, filter=plain)


def _write_json(value: object, content: IO[bytes]) -> None:
    content.write(json.dumps(value, sort_keys=True).encode())


async def _main() -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    store = Store(Path(os.environ["SANDBOX_FOLDER"]) / "registry")
    runner = web.AppRunner(
        Registry(store, contents.find).application(), keepalive_timeout=_IDLE, shutdown_timeout=_FAREWELL
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, os.environ["SANDBOX_HOST"], PORT).start()
        await ended.wait()
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(_main())
