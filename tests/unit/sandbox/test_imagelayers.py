"""A program is taken out of the layers of an image."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from sandbox.programs import downloads, releases
from sandbox.programs.binaries import PROGRAMS
from sandbox.progress import Progress
from tests.support.cases import cases
from tests.unit.sandbox.releaseserver import IMAGES, Releases, layer, script

MANAGER = PROGRAMS["gardener-resource-manager"]
_IMAGE = f"/v2{IMAGES}/resource-manager"
TAG = f"{_IMAGE}/manifests/v1.150.0"
PROGRAM = layer({"usr/local/bin/gardener-resource-manager": script("v1.150.0")})
SYSTEM = layer({"etc/gardener-resource-manager/config": b""})


def _downloaded() -> tuple[bool, dict[str, bytes], str]:
    said, kept = list[str](), dict[str, bytes]()
    left = downloads.download(
        [MANAGER], Progress(said.append), lambda _, path: kept.update(it=path.read_bytes())
    )
    return not left, kept, said[-1]


def test_only_the_layers_down_to_the_program_are_asked_for(published: Releases) -> None:
    below = SYSTEM, layer({"etc/hosts": b""})
    published.publish_image("resource-manager", "v1.150.0", *below, PROGRAM, layer({"etc/passwd": b"nobody"}))
    done, kept, _ = _downloaded()
    assert done
    assert kept["it"] == script("v1.150.0")
    assert len([path for path in published.asked if path.startswith("/store/")]) == 2


def test_an_image_for_one_platform_has_no_index(published: Releases) -> None:
    digest = published.publish_image("resource-manager", "v1.150.0", PROGRAM)
    published.files[TAG] = published.files[f"{_IMAGE}/manifests/{digest}"]
    assert _downloaded()[0]


def test_a_pinned_manifest_is_asked_for_by_its_digest(
    published: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = published.publish_image("resource-manager", "v1.150.0", PROGRAM)
    published.publish_image("resource-manager", "v1.150.0", layer({}))
    about = releases.known()["gardener"]
    pins = {MANAGER.name: dict.fromkeys(about["programs"][MANAGER.name], digest.removeprefix("sha256:"))}
    monkeypatch.setattr(releases, "known", lambda: {"gardener": {**about, "programs": pins}})
    assert _downloaded()[0]
    assert TAG not in published.asked


def _forged_layer(published: Releases, _: str) -> None:
    for path in published.files:
        if path.startswith("/store/"):
            published.files[path] = SYSTEM


def _other_layer(content: bytes) -> Callable[[Releases, str], object]:
    return lambda published, _: published.publish_image("resource-manager", "v1.150.0", content)


def _manifest(change: dict[str, object]) -> Callable[[Releases, str], None]:
    def spoil(published: Releases, digest: str) -> None:
        found = json.loads(published.files[f"{_IMAGE}/manifests/{digest}"])
        found["layers"][0] |= change
        published.files[TAG] = json.dumps(found).encode()

    return spoil


@cases(
    "spoil complaint",
    ("no-such-version", lambda published, _: published.files.pop(TAG), "404"),
    ("forged-layer", _forged_layer, "has the SHA-256"),
    (
        "forged-manifest",
        lambda published, digest: published.files.update({f"{_IMAGE}/manifests/{digest}": b'{"layers": []}'}),
        "has the digest sha256:",
    ),
    ("page", lambda published, _: published.files.update({TAG: b"<html>"}), "v1.150.0 cannot be used: "),
    ("huge-layer", _manifest({"size": 1 << 40}), "layers.0.size: "),
    ("compressed-otherwise", _manifest({"mediaType": "layer.v1.tar+zstd"}), "layers.0.mediaType: "),
    ("strange-digest", _manifest({"digest": "sha256:../../token"}), "layers.0.digest: "),
    (
        "other-platforms",
        lambda published, _: published.files.update({TAG: b'{"manifests": []}'}),
        "has no image for linux/",
    ),
    ("no-program", _other_layer(SYSTEM), "has no program"),
    ("no-archive", _other_layer(b"#"), "cannot be unpacked"),
    ("no-token", lambda published, _: published.refused.update({"/token": 403}), "403"),
)  # fmt: skip
def test_an_image_that_cannot_be_used_is_left(
    spoil: Callable[[Releases, str], object], complaint: str, published: Releases
) -> None:
    spoil(published, published.publish_image("resource-manager", "v1.150.0", PROGRAM))
    done, _, said = _downloaded()
    assert not done
    assert "gardener-resource-manager 1.150.0: not downloaded, so it is compiled: " in said
    assert complaint in said
