"""A garden's admission in Pods, as gardener-operator's own controllers install it from extension.yaml."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from sandbox.servers import resourcemanager
from tests.host.install import virtualgarden
from tests.host.install.virtualgarden import VirtualGarden
from tests.support import echoclient, installing, releasedshoot, servers
from tests.support.admissionexamples import Example, examples
from tests.support.patching import patched
from tests.support.release import Release
from tests.support.releasedshoot import Asked
from tests.support.rules import rule
from windowbox.errors import Refused, WindowboxError

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

EXAMPLES = {one.name: one for one in examples()}
DENIED = ("WA-18", "WA-20", "WA-21")
NAME = "gardener-extension-admission-local"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations"
AUTHORITY, SERVER = "ca-admission-local-webhook", "admission-local-webhook-server"
SECRETS = "/api/v1/namespaces/garden/secrets"
PATIENCE = 90.0


@pytest.fixture(scope="module")
def garden(installed: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualGarden]:
    servers.need(installing.PROGRAM, resourcemanager.PROGRAM)
    with virtualgarden.opened(installed.node, tmp_path_factory.mktemp("garden")) as made:
        made.tell_of_service()
        echoclient.until(lambda: check_denied(made, EXAMPLES["WA-18"]), patience=PATIENCE)
        yield made


def path_of(example: Example) -> str:
    metadata = example.object["metadata"]
    place = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"/apis/{example.object['apiVersion']}{place}/{example.fields['resource']}"


def check_denied(garden: VirtualGarden, example: Example) -> None:
    assert example.denied in refusal(garden, example)


def refusal(garden: VirtualGarden, example: Example) -> str:
    """The error for the object; empty if it is accepted."""
    try:
        garden.api.create(f"{path_of(example)}?dryRun=All", dict(example.object))
    except WindowboxError as error:
        return str(error)
    return ""


def test_admission_pods_answer_their_garden(garden: VirtualGarden) -> None:
    for name in DENIED:
        check_denied(garden, EXAMPLES[name])

    shoot = EXAMPLES["WA-16"]
    made = garden.api.create(f"{path_of(shoot)}?dryRun=All", dict(shoot.object))
    wanted: Any = patched(shoot.object, shoot.patch)
    assert made["metadata"]["annotations"] == wanted["metadata"]["annotations"]

    for kind in ("mutating", "validating"):
        written = garden.api.read(f"{CONFIGURATIONS.format(kind)}/{NAME}")
        [owner] = written["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("Namespace", "extension-provider-local")
        for one in written["webhooks"]:
            assert one["clientConfig"]["url"].startswith(f"https://{NAME}.garden:443/")


def test_parent_profiles_are_read_with_garden_tokens(garden: VirtualGarden) -> None:
    config = {
        "apiVersion": "local.provider.extensions.gardener.cloud/v1alpha1",
        "kind": "CloudProfileConfig",
        "machineImages": [{"name": "local", "versions": [{"version": "1.0.0", "image": "local/node:1"}]}],
    }
    given, profile = dict(EXAMPLES["WA-21"].object), EXAMPLES["WA-17"]
    parent = {**given, "spec": {**given["spec"], "providerConfig": config}}
    garden.api.create(path_of(EXAMPLES["WA-21"]), parent)
    path = f"{path_of(profile)}?dryRun=All"
    child = {key: value for key, value in profile.object.items() if key != "status"}
    undefined = r"machineImages\[0\]: Required value: machine image local is not defined"
    with pytest.raises(Refused, match=undefined):
        garden.api.create(path, child)
    added = [{"name": "local", "versions": [{"version": "1.1.0"}]}]
    garden.api.create(path, {**child, "spec": {**child["spec"], "machineImages": added}})


@rule("WF-61", "WF-62")
def test_a_new_authority_fails_no_request(garden: VirtualGarden) -> None:
    before = shown(garden)
    with asking(garden) as seen:
        age_authority(garden)
        comes_true(lambda: bool(shown(garden) - before))
        enough = seen.answered + 20
        comes_true(lambda: seen.answered >= enough)
    assert seen.failed == []
    written = garden.api.read(f"{CONFIGURATIONS.format('validating')}/{NAME}")
    bundle = base64.b64decode(written["webhooks"][0]["clientConfig"]["caBundle"])
    assert bundle.count(b"BEGIN CERTIFICATE") == 2


def test_another_pod_takes_over_the_configurations(garden: VirtualGarden) -> None:
    holder = lease(garden)
    assert holder
    with asking(garden) as seen:
        garden.node.kubectl("delete", "pod", holder.partition("/")[0], "--namespace=garden", "--timeout=60s")
        comes_true(lambda: lease(garden) not in ("", holder))
        path = f"{CONFIGURATIONS.format('validating')}/{NAME}"
        before = garden.api.read(path)["webhooks"]
        garden.node.kubectl(
            "patch", f"validatingwebhookconfiguration/{NAME}", "--type=json",
            "--patch", json.dumps([{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 1}]),
        )  # fmt: skip
        comes_true(lambda: bool(garden.api.read(path)["webhooks"] == before))
    assert seen.failed == []


def asking(garden: VirtualGarden) -> AbstractContextManager[Asked]:
    """A client that creates invalid Shoots all the time."""
    wrong = EXAMPLES["WA-18"]

    def ask() -> str:
        error = refusal(garden, wrong)
        return "" if wrong.denied in error else error or "it was accepted"

    return releasedshoot.repeating(ask)


def secrets(garden: VirtualGarden, name: str) -> list[dict[str, Any]]:
    """All Secrets of that name of the secrets manager, of the runtime cluster."""
    found: list[dict[str, Any]] = garden.node.api.read(f"{SECRETS}?labelSelector=name={name}")["items"]
    return found


def shown(garden: VirtualGarden) -> set[str]:
    return {one["metadata"]["name"] for one in secrets(garden, SERVER)}


def age_authority(garden: VirtualGarden) -> None:
    """Make the authority due for renewal."""
    [found] = secrets(garden, AUTHORITY)
    now = int(time.time())
    labels = (f"issued-at-time={now - 29 * 86400}", f"valid-until-time={now + 86400}")
    name = found["metadata"]["name"]
    garden.node.kubectl("label", "secret", name, "--namespace=garden", "--overwrite", *labels)


def comes_true(holds: Callable[[], bool]) -> None:
    def check() -> None:
        assert holds()

    echoclient.until(check, patience=PATIENCE)


def lease(garden: VirtualGarden) -> str:
    path = f"/apis/coordination.k8s.io/v1/namespaces/garden/leases/{NAME}"
    return str(garden.node.api.read(path)["spec"].get("holderIdentity") or "")
