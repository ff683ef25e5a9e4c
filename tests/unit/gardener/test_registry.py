"""The registry, asked over HTTP as containerd and Helm ask."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp.test_utils import TestServer

from sandbox.nodes.images import Image
from tools.gardener import contents
from tools.gardener.contents import Chart
from tools.gardener.registry import Registry, Store

IMAGE = "/v2/some/image/manifests/v1?ns=example.org"
CHART = "/v2/charts/one/manifests/1.0.0"


class Asked:
    """The registry, and the file of a program in its image."""

    def __init__(self, client: aiohttp.ClientSession, program: Path) -> None:
        self.client = client
        self.program = program

    async def refused(self, path: str, method: str = "GET") -> tuple[int, str]:
        async with self.client.request(method, path) as answer:
            return answer.status, (await answer.json())["errors"][0]["code"]

    async def manifest(self, path: str) -> dict[str, Any]:
        async with self.client.get(path) as answer:
            assert answer.status == 200
            assert answer.content_type == "application/vnd.oci.image.manifest.v1+json"
            body = await answer.read()
            assert answer.headers["Docker-Content-Digest"] == _digest(body)
            found: dict[str, Any] = json.loads(body)
            return found

    async def blob(self, one: dict[str, Any]) -> bytes:
        async with self.client.get(f"/v2/any/name/blobs/{one['digest']}") as answer:
            body = await answer.read()
        assert (_digest(body), len(body)) == (one["digest"], one["size"])
        return body


@pytest_asyncio.fixture
async def registry(tmp_path: Path) -> AsyncIterator[Asked]:
    program, chart = tmp_path / "program", tmp_path / "folder"
    program.write_bytes(b"first")
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: one\nversion: 1.0.0\n")
    (chart / "templates" / "some.yaml").write_text("{}\n")

    def find(repository: str, tag: str) -> Image | Chart | None:
        if repository == "example.org/some/image" and tag == "v1":
            return Image(
                "some", {"bin/program": program, "etc/passwd": "root"}, ("/bin/program",), user="5:5"
            )
        return Chart("one", chart) if repository.endswith("/charts/one") else None

    server = TestServer(Registry(Store(tmp_path / "store"), find).application())
    await server.start_server()
    async with aiohttp.ClientSession(server.make_url("/")) as client:
        yield Asked(client, program)
    await server.close()


async def test_an_image_is_the_files_of_the_table(registry: Asked) -> None:
    manifest = await registry.manifest(IMAGE)
    config = json.loads(await registry.blob(manifest["config"]))
    [layer] = manifest["layers"]
    assert config["config"]["Entrypoint"] == ["/bin/program"]
    assert config["config"]["User"] == "5:5"
    assert config["rootfs"]["diff_ids"] == [layer["digest"]]
    with tarfile.open(fileobj=io.BytesIO(await registry.blob(layer))) as files:
        program = files.extractfile("bin/program")
        assert program is not None
        assert program.read() == b"first"


async def test_an_image_follows_its_program(registry: Asked) -> None:
    first = await registry.manifest(IMAGE)
    assert await registry.manifest(IMAGE) == first
    registry.program.write_bytes(b"second one")
    [layer] = (await registry.manifest(IMAGE))["layers"]
    assert b"second one" in await registry.blob(layer)
    # Whoever has read the former manifest can go on.
    assert b"first" in await registry.blob(first["layers"][0])


async def test_head_tells_the_digest_by_which_a_manifest_is_found(registry: Asked) -> None:
    async with registry.client.head(IMAGE) as answer:
        assert (answer.status, await answer.read()) == (200, b"")
        digest = answer.headers["Docker-Content-Digest"]
    assert await registry.manifest(f"/v2/some/image/manifests/{digest}") == await registry.manifest(IMAGE)


async def test_a_chart_is_an_archive_of_its_folder(registry: Asked) -> None:
    manifest = await registry.manifest(CHART)
    [layer] = manifest["layers"]
    assert manifest["config"]["mediaType"] == "application/vnd.cncf.helm.config.v1+json"
    assert layer["mediaType"] == "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
    assert json.loads(await registry.blob(manifest["config"]))["version"] == "1.0.0"
    with tarfile.open(fileobj=io.BytesIO(await registry.blob(layer)), mode="r:gz") as files:
        assert {"one/Chart.yaml", "one/templates/some.yaml"} <= set(files.getnames())


@pytest.mark.parametrize(
    ("method", "path", "refusal"),
    [
        pytest.param(
            "GET", "/v2/some/image/manifests/v1?ns=other.org", (404, "MANIFEST_UNKNOWN"), id="another-host"
        ),
        pytest.param(
            "GET", "/v2/some/image/manifests/v2?ns=example.org", (404, "MANIFEST_UNKNOWN"), id="another-tag"
        ),
        pytest.param(
            "GET", f"/v2/some/image/manifests/sha256:{'0' * 64}", (404, "MANIFEST_UNKNOWN"), id="digest"
        ),
        pytest.param("GET", f"/v2/x/blobs/sha256:{'0' * 64}", (404, "BLOB_UNKNOWN"), id="unknown-blob"),
        pytest.param("GET", "/v2/x/blobs/sha256:..%2F..%2Fbuilt", (404, "BLOB_UNKNOWN"), id="no-digest"),
        pytest.param("GET", "/v2/some/image/tags/list", (404, "NAME_UNKNOWN"), id="tags"),
        pytest.param("POST", "/v2/some/image/blobs/uploads/", (404, "NAME_UNKNOWN"), id="upload"),
        pytest.param("PUT", IMAGE, (405, "UNSUPPORTED"), id="push"),
        pytest.param("DELETE", IMAGE, (405, "UNSUPPORTED"), id="delete"),
    ],
)  # fmt: skip
async def test_what_is_not_there_is_refused_in_words_of_the_specification(
    registry: Asked, method: str, path: str, refusal: tuple[int, str]
) -> None:
    assert await registry.refused(path, method) == refusal


@pytest.mark.parametrize(
    ("image", "real"),
    [
        ("europe-docker.pkg.dev/gardener-project/releases/gardener/gardenlet:v1.150.0", True),
        ("europe-docker.pkg.dev/gardener-project/public/gardener/gardenlet:v1.150.0@sha256:0", True),
        ("registry.local.gardener.cloud:5001/windowbox/windowbox:1", True),
        ("windowbox.local/busybox:1", True),
        ("rancher/local-path-provisioner", True),
        ("quay.io/prometheus/prometheus:v3", False),
        ("example.org/gardenlet-of-others:1", False),
        ("example.org/other/coredns/coredns:1", False),
    ],
)
def test_pods_with_these_images_are_real(image: str, real: bool) -> None:
    assert bool(re.match(contents.pattern(), image)) is real


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
