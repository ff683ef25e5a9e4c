"""The table of images, without the programs that are in them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from tools.gardener import images, programs

_RELEASES = "gardener-project/releases"


@pytest.mark.parametrize(
    ("reference", "repository"),
    [
        ("registry.k8s.io/kube-apiserver:v1.36.3", "kube-apiserver"),
        ("kube-apiserver:v1.36.3", "kube-apiserver"),
        ("localhost:5001/kube-proxy", "kube-proxy"),
        (f"europe-docker.pkg.dev/{_RELEASES}/gardener/gardenlet:v9", f"{_RELEASES}/gardener/gardenlet"),
        ("gardener-project/public/gardener/etcdbrctl:v0.41.2", f"{_RELEASES}/gardener/etcdbrctl"),
        ("registry.k8s.io/coredns/coredns:v1.14.7@sha256:00", "coredns/coredns"),
    ],
)  # fmt: skip
def test_a_reference_is_found_under_any_host_and_tag(reference: str, repository: str) -> None:
    found = images.find(reference)
    assert found is not None
    assert found.repository == repository


@pytest.mark.parametrize(
    "reference", ["registry.k8s.io/kube-apiserver:v1.35.0", "docker.io/library/nginx:1", "nginx"]
)
def test_other_versions_of_kubernetes_and_unknown_images_are_not_there(reference: str) -> None:
    assert images.find(reference) is None
    assert images.image(reference) is None


def test_the_tag_of_an_image_of_kubernetes_is_the_version_of_its_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(programs, "path", Path)
    found = {
        tag: images.image(f"europe-docker.pkg.dev/{_RELEASES}/hyperkube:{tag}")
        for tag in ("v1.36.3", "v1.34.3")
    }
    assert {tag: one.files["kubelet"] for tag, one in found.items() if one} == {
        "v1.36.3": Path("kubelet"),
        "v1.34.3": Path("kubelet-1.34"),
    }


def test_gardeners_tests_find_kubectl_in_a_container_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "path", Path)
    found = images.image(f"europe-docker.pkg.dev/{_RELEASES}/hyperkube:v1.34.3")
    assert found is not None
    assert found.files["kubectl"] == Path("kubectl")
    assert found.entrypoint[:2] == ("/bin/busybox", "sleep")


def test_each_row_names_programs_that_are_built_or_says_why_not() -> None:
    for row in images.COMPONENTS.values():
        if row.how in ("played", "absent"):
            assert row.why, row
            assert not row.files, row
        for name in row.files.values():
            assert name in programs.PROGRAMS or name in programs.SANDBOX, row


def test_the_table_knows_all_images_of_gardener() -> None:
    vector = programs.source("github.com/gardener/gardener", programs.GARDENER) / "imagevector"
    if not vector.exists():
        pytest.skip("Gardener's module is not in Go's cache")
    listed = yaml.safe_load((vector / "containers.yaml").read_text())["images"]
    assert [one["repository"] for one in listed if images.find(one["repository"]) is None] == []


def test_an_image_has_its_program_as_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "path", lambda name: tmp_path / name)
    made = images.image("europe-docker.pkg.dev/gardener-project/releases/gardener/gardenlet:v1.150.0")
    assert made is not None
    assert made.entrypoint == ("/gardenlet",)
    assert made.files["gardenlet"] == tmp_path / "gardenlet"
    assert made.user == "65532:65532"


def test_an_image_with_tools_has_a_shell_and_links_to_them() -> None:
    made = images.image("registry.k8s.io/node-problem-detector/node-problem-detector:v1.36.0")
    assert made is not None
    assert str(made.files["node-problem-detector"]).startswith("#!/bin/sh")
    assert made.links["bin/sh"] == "busybox"


@pytest.mark.skipif(not shutil.which("xtables-nft-multi", path="/usr/sbin"), reason="needs iptables")
def test_tools_of_this_machine_are_in_an_image_with_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "path", Path)
    found = images.image("registry.k8s.io/kube-proxy")
    assert found is not None
    assert (found.entrypoint, found.command) == (("/usr/local/bin/kube-proxy",), ())
    assert found.links["usr/sbin/iptables-restore"] == "xtables-nft-multi"
    assert "usr/sbin/xtables-nft-multi" in found.files
