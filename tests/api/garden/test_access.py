"""A garden on a real API server, reached by files as gardenlet and kubelet write them."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from commands.roles import gardenaccess
from sandbox.servers import certificates, kubeconfigs
from tests.support import standins
from tests.support.rules import rule
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Forbidden, Missing
from windowbox.models.refs import SEEDS, SHOOTS, Resource
from windowbox.settings.clustersettings import GardenSettings

REVIEWS = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)
ANNOTATION = "provider-local-e2e-test-garden-access"


@pytest.fixture(scope="module")
def garden(plane: ControlPlane) -> Iterator[ControlPlane]:
    """An API server that has Seeds and Shoots."""
    kinds = tuple(
        (one.group, one.version, one.plural, one.kind, one.namespaced, False) for one in (SEEDS, SHOOTS)
    )
    standins.define(plane.api, kinds)
    yield plane
    standins.remove(plane.api, kinds)


class Extension:
    """What gardenlet gives to an extension: an account that may do what SeedAuthorizer grants, and files."""

    def __init__(self, garden: ControlPlane, folder: Path) -> None:
        self._api, self._folder = garden.api, folder
        self.seed = f"seed-{uuid.uuid4().hex[:8]}"
        self._namespace = f"seed-{self.seed}"
        self._account = f"/api/v1/namespaces/{self._namespace}/serviceaccounts"
        self.user = f"system:serviceaccount:{self._namespace}:extension-provider-local"
        self._api.create("/api/v1/namespaces", {"metadata": {"name": self._namespace}})
        self._api.create(self._account, {"metadata": {"name": "extension-provider-local"}})

    def grant(self, *names: str, verbs: tuple[str, ...] = ("get", "patch")) -> None:
        rule = {"apiGroups": [SEEDS.group], "resources": ["seeds", "shoots"], "verbs": verbs}
        place, name = "/apis/rbac.authorization.k8s.io/v1", f"granted-{self.seed}"
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        subject = {"kind": "ServiceAccount", "namespace": self._namespace, "name": "extension-provider-local"}
        self._api.create(
            f"{place}/clusterroles",
            {"metadata": {"name": name}, "rules": [rule | {"resourceNames": [*names]}]},
        )
        self._api.create(
            f"{place}/clusterrolebindings",
            {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]},
        )

    def token(self) -> tuple[str, str]:
        """A new token, and the id by which the API server knows it."""
        place = f"{self._account}/extension-provider-local/token"
        made = str(self._api.create(place, {"spec": {"expirationSeconds": 600}})["status"]["token"])
        claims = made.split(".")[1]
        return made, json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["jti"]

    def project(self, **files: str) -> None:
        """Exchange the files of the volume at once, as kubelet does."""
        version = self._folder / f"..{uuid.uuid4().hex}"
        version.mkdir()
        for name, content in files.items():
            (version / name).write_text(content)
            with contextlib.suppress(FileExistsError):
                (self._folder / name).symlink_to(f"..data/{name}")
        (self._folder / "..data_tmp").symlink_to(version.name)
        os.rename(self._folder / "..data_tmp", self._folder / "..data")

    def kubeconfig(self) -> str:
        """As gardenlet writes it: the token stands beside it."""
        text = kubeconfigs.text(self._api.url, self._api.ca, "nobody's")
        content = yaml.safe_load(text)
        content["users"][0]["user"] = {"tokenFile": str(self._folder / "token")}
        return yaml.safe_dump(content)


@pytest.fixture
def extension(garden: ControlPlane, tmp_path: Path) -> Extension:
    return Extension(garden, tmp_path)


@rule("P-4", "WP-20", "WP-22", "WP-23")
async def test_our_seed_and_shoot_are_annotated_with_no_more_rights_than_seedauthorizer_grants(
    garden: ControlPlane, extension: Extension, tmp_path: Path
) -> None:
    shoots = SHOOTS.path("garden")
    with contextlib.suppress(Exception):
        garden.api.create("/api/v1/namespaces", {"metadata": {"name": "garden"}})
    for place, kind in ((SEEDS.path(), "Seed"), (shoots, "Shoot")):
        head = {"apiVersion": "core.gardener.cloud/v1beta1", "kind": kind}
        garden.api.create(place, {**head, "metadata": {"name": extension.seed}})
    extension.grant(extension.seed)
    extension.project(token=f"{extension.token()[0]}\n", kubeconfig=extension.kubeconfig())
    settings = GardenSettings(
        kubeconfig=tmp_path / "kubeconfig",
        seed=extension.seed,
        shoot=extension.seed,
        shoot_namespace="garden",
    )

    async def annotated() -> bool:
        found = [garden.api.read(f"{place}/{extension.seed}") for place in (SEEDS.path(), shoots)]
        return all(one["metadata"].get("annotations", {}).get(ANNOTATION, "").endswith("Z") for one in found)

    assert await gardenaccess.proven(settings)
    assert await annotated()
    log = (garden.kubeconfig.parent / "audit.log").read_text().splitlines()
    asked = [one for one in map(json.loads, log) if one["user"].get("username") == extension.user]
    assert {(one["verb"], one["objectRef"]["resource"], one["objectRef"]["name"]) for one in asked} == {
        (verb, resource, extension.seed) for verb in ("get", "patch") for resource in ("seeds", "shoots")
    }


@rule("WP-23")
@pytest.mark.parametrize(("granted", "reason"), [(True, Missing), (False, Forbidden)])
async def test_a_process_without_access_to_the_garden_ends(
    extension: Extension, tmp_path: Path, granted: bool, reason: type[Exception]
) -> None:
    if granted:
        extension.grant(extension.seed)
    extension.project(token=extension.token()[0], kubeconfig=extension.kubeconfig())
    with pytest.raises(reason):
        await gardenaccess.proven(GardenSettings(kubeconfig=tmp_path / "kubeconfig", seed=extension.seed))


@rule("WP-21")
async def test_a_rotated_token_is_used_at_once(extension: Extension, tmp_path: Path) -> None:
    first, known = extension.token()
    extension.project(token=first, kubeconfig=extension.kubeconfig())
    async with kube.from_file(tmp_path / "kubeconfig") as garden:
        assert (await _who(garden))[1] == known
        for _ in range(2):
            token, expected = extension.token()
            extension.project(token=token, kubeconfig=extension.kubeconfig())
            await eventually(lambda expected=expected: _knows(garden, expected))  # type: ignore[misc]


async def test_a_rotated_certificate_is_used_at_once(garden: ControlPlane, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    content = yaml.safe_load(kubeconfigs.text(garden.api.url, garden.api.ca, "nobody's"))
    user = {"client-certificate": "tls.crt", "client-key": "tls.key"}
    content["users"][0]["user"] = user
    file.write_text(yaml.safe_dump(content))
    _certificate(garden, tmp_path, "first")
    async with kube.from_file(file) as api:
        assert (await _who(api))[0] == "first"
        _certificate(garden, tmp_path, "second")

        async def renamed() -> bool:
            return (await _who(api))[0] == "second"

        await eventually(renamed)


async def test_files_that_are_half_replaced_change_nothing(extension: Extension, tmp_path: Path) -> None:
    token, known = extension.token()
    extension.project(token=token, kubeconfig=extension.kubeconfig())
    async with kube.from_file(tmp_path / "kubeconfig") as garden:
        extension.project(token=token, kubeconfig="clusters: {")
        later, expected = extension.token()
        assert (await _who(garden))[1] == known
        extension.project(token=later, kubeconfig=extension.kubeconfig())
        await eventually(lambda: _knows(garden, expected))


async def _knows(api: Kube, expected: str) -> bool:
    return (await _who(api))[1] == expected


async def _who(api: Kube) -> tuple[str, str]:
    """The user that the API server takes us for, and the id of the token."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {"name": "me"}}
    info: dict[str, Any] = (await api.create(REVIEWS, "", body)).status["userInfo"]
    ids = info.get("extra", {}).get("authentication.kubernetes.io/credential-id", [""])
    return info["username"], ids[0].removeprefix("JTI=")


def _certificate(garden: ControlPlane, folder: Path, user: str) -> None:
    made = certificates.client(garden.api.ca, folder / "pki", user)
    for source, name in ((made.key, "tls.key"), (made.certificate, "tls.crt")):
        shutil.copy(source, folder / f"{name}.new")
        os.rename(folder / f"{name}.new", folder / name)
