"""OperatingSystemConfigs, from the API to what is made of them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.kindworld import Client, KindWorld, failed, kind_world
from tests.support.markers import Markers
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from windowbox.models.extensions import OPERATION
from windowbox.models.objects import Object
from windowbox.models.refs import OPERATING_SYSTEM_CONFIGS as OSCS
from windowbox.models.refs import SECRETS
from workers import replay

pytestmark = [pytest.mark.serves("operatingsystemconfig"), pytest.mark.asyncio(loop_scope="module")]

CONTRACT = Path(__file__).resolve().parents[3].parent / "shared" / "contract" / "extensions.md"
FINALIZER = "extensions.gardener.cloud/operatingsystemconfigs"
INLINE = {"path": "/etc/motd", "content": {"inline": {"encoding": "", "data": "hello"}}}


def example(section: str) -> list[dict[str, Any]]:
    """The objects of an appendix: as the client writes it, and as it has become."""
    if not CONTRACT.exists():
        pytest.skip("the contract with its examples is not here")
    chapter = CONTRACT.read_text().split(f"## {section} ", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(r"```yaml\n(.*?)```", chapter, re.DOTALL)
    return [document for block in blocks for document in yaml.safe_load_all(block)]


def from_secret(secret: str, key: str, path: str = "/etc/secret", **content: Any) -> dict[str, Any]:
    return {"path": path, "content": {"secretRef": {"name": secret, "dataKey": key}, **content}}


async def provision(shoot: Client, name: str, *files: dict[str, Any], **spec: Any) -> Object:
    """An object that has come to be ready."""
    await shoot.create(OSCS, name, {"purpose": "provision", "files": list(files), **spec})
    return await shoot.until_ready(OSCS, name)


async def script(shoot: Client, secret: str) -> bytes:
    return in_secret(await shoot.get(SECRETS, secret))


def in_secret(found: Object | None) -> bytes:
    assert found
    return base64.b64decode(found.raw["data"]["cloud_config"])


def report(object: Object) -> str:
    return str(object.status["lastError"]["description"])


def without_times(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: without_times(value) for key, value in node.items() if key != "lastUpdateTime"}
    return node


@pytest.mark.parametrize(
    "section", [pytest.param("A.4", id="A.4+X-4+X-5+C.1"), pytest.param("A.5", id="A.5+X-6+X-7")]
)
async def test_the_examples_become_what_they_ought_to(world: KindWorld, section: str) -> None:
    written, wanted = example(section)
    shoot = await world.shoot()
    for document in (written, wanted):
        document["metadata"]["namespace"] = shoot.namespace
    if secret := wanted["status"].get("cloudConfig", {}).get("secretRef"):
        secret["namespace"] = shoot.namespace
    await world.kube.create(OSCS, shoot.namespace, written)
    found = await shoot.until_ready(OSCS, written["metadata"]["name"])
    assert without_times(found.status) == without_times(wanted["status"])
    assert found.status["lastOperation"]["lastUpdateTime"] >= "2026-09-01T10:15:30Z"
    for name, value in wanted["metadata"].items():
        assert found.metadata[name] == value
    secret_there = await shoot.get(SECRETS, f"osc-result-{found.name}")
    assert (secret_there is not None) == (section == "A.4")


@rule("C.1", "X-4")
async def test_the_secret_holds_the_script_and_goes_with_its_owner(world: KindWorld) -> None:
    shoot = await world.shoot()
    motd = {"inline": {"encoding": "b64", "data": "aGVsbG8K"}}
    token = {"inline": {"encoding": "", "data": "<<TOKEN>>"}, "transmitUnencoded": True}
    found = await provision(
        shoot,
        "init",
        {"path": "/etc/motd", "permissions": 420, "content": motd},
        {"path": "/var/lib/node/token", "content": token},
        units=[{"name": "greet.service", "content": "[Service]\nExecStart=/bin/true\n"}],
    )
    name = found.status["cloudConfig"]["secretRef"]["name"]
    made = await script(shoot, name)
    digest = "7df32a7b2a6e0aa58f6dc6cc306e80414b734411724738277efca4e20d49a6f1"
    assert (len(made), hashlib.sha256(made).hexdigest()) == (575, digest)
    secret = await shoot.get(SECRETS, name)
    assert secret
    assert secret.metadata["ownerReferences"] == [
        {
            "apiVersion": "extensions.gardener.cloud/v1alpha1",
            "kind": "OperatingSystemConfig",
            "name": found.name,
            "uid": found.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    await shoot.delete(OSCS, found.name)
    await shoot.until_gone(OSCS, found.name)
    await shoot.until_gone(SECRETS, name)


@rule("X-4", "X-1")
async def test_files_come_from_secrets_and_other_keys_of_the_result_stay(world: KindWorld) -> None:
    shoot = await world.shoot()
    await shoot.secret("source", token=b"<<BOOTSTRAP_TOKEN>>")
    raw = from_secret("source", "token", transmitUnencoded=True)
    await provision(shoot, "init", raw, from_secret("source", "no-such-key", "/etc/empty"))
    made = await script(shoot, "osc-result-init")
    assert b'cat << EOF > "/etc/secret"\n<<BOOTSTRAP_TOKEN>>\nEOF\n' in made
    assert b'cat << EOF | base64 -d > "/etc/empty"\n\nEOF\n' in made

    about = {"labels": {"whose": "theirs"}, "annotations": {"note": "theirs"}}
    foreign = {"metadata": about, "data": {"other": "eA=="}}
    await shoot.merge(SECRETS, "osc-result-init", foreign)
    await shoot.secret("source", token=b"changed")
    await shoot.ask(OSCS, "init")
    found = await shoot.until(SECRETS, "osc-result-init", lambda one: b"\nchanged\n" in in_secret(one))
    assert found
    assert (found.raw["data"]["other"], found.labels["whose"]) == ("eA==", "theirs")
    assert found.annotations["note"] == "theirs"


@rule("X-4")
async def test_the_name_that_was_reported_once_is_kept(world: KindWorld) -> None:
    shoot = await world.shoot()
    spec = {"purpose": "provision"}
    await shoot.create(OSCS, "old", spec, operation="wait-for-state")
    reference = {"name": "cloud-config-of-old", "namespace": shoot.namespace}
    await shoot.merge(OSCS, "old", {"status": {"cloudConfig": {"secretRef": reference}}}, part="status")
    await shoot.ask(OSCS, "old", "restore")
    found = await shoot.until_ready(OSCS, "old")
    assert found.status["cloudConfig"]["secretRef"] == reference
    assert found.last_operation["type"] == "Restore"
    assert len(await script(shoot, "cloud-config-of-old")) == 220
    assert await shoot.get(SECRETS, "osc-result-old") is None


@rule("X-8", "X-5")
async def test_former_and_foreign_fields_leave_the_status(world: KindWorld) -> None:
    shoot = await world.shoot()
    updates = {"operatingSystemVersion": "2.0.0", "kubelet": "1.36.0"}
    await shoot.create(OSCS, "original", {"purpose": "reconcile", "inPlaceUpdates": updates})
    found = await shoot.until_ready(OSCS, "original")
    assert found.status["inPlaceUpdates"]["osUpdate"]["args"][-1] == "/etc/os-release"
    # Somebody else's additions, too, are written over.
    foreign = {"extensionFiles": [INLINE], "extensionUnits": []}
    await shoot.merge(OSCS, "original", {"status": foreign}, part="status")
    await shoot.ask(OSCS, "original", spec={"inPlaceUpdates": None})
    after = await shoot.until(
        OSCS, "original", lambda one: one is not None and one.status.get("observedGeneration") == 2
    )
    assert after
    assert "inPlaceUpdates" not in after.status
    assert "extensionFiles" not in after.status
    assert [unit["name"] for unit in after.status["extensionUnits"]] == ["systemd-user-sessions.service"]


@rule("X-1", "B.12")
async def test_a_missing_secret_is_reported_and_creates_nothing(world: KindWorld) -> None:
    shoot = await world.shoot()
    spec = {"purpose": "provision", "files": [from_secret("later", "key")]}
    await shoot.create(OSCS, "init", spec)
    found = await shoot.until_failed(OSCS, "init")
    assert report(found).startswith("Error reconciling OperatingSystemConfig: ")
    assert f"Secret {shoot.namespace}/later does not exist" in report(found)
    assert found.status["lastError"]["codes"] == ["ERR_CONFIGURATION_PROBLEM"]
    assert found.last_operation["type"] == "Create"
    assert await shoot.get(SECRETS, "osc-result-init") is None
    await shoot.secret("later", key=b"here")
    await shoot.ask(OSCS, "init")
    assert (await shoot.until_ready(OSCS, "init")).last_operation["type"] == "Create"


@rule("U-1", "B.12")
async def test_a_secret_that_cannot_be_written_is_reported(world: KindWorld) -> None:
    shoot = await world.shoot()
    body = {"metadata": {"name": "osc-result-init"}, "immutable": True, "data": {"cloud_config": "eA=="}}
    await world.kube.create(SECRETS, shoot.namespace, body)
    await shoot.create(OSCS, "init", {"purpose": "provision"})
    found = await shoot.until_failed(OSCS, "init")
    assert report(found).startswith("Could not apply secret for generated cloud config: ")
    assert found.last_operation["description"] == report(found)
    assert found.last_operation["type"] == "Create"


@rule("D-6", "X-10")
async def test_migration_leaves_the_secret_and_passes_by_what_was_never_held(world: KindWorld) -> None:
    shoot = await world.shoot()
    await provision(shoot, "init", INLINE)
    await shoot.ask(OSCS, "init", "migrate")
    found = await shoot.until(OSCS, "init", migrated)
    assert found
    assert found.finalizers == ()
    assert await shoot.get(SECRETS, "osc-result-init")

    await shoot.create(OSCS, "strange", {"purpose": "provision"}, operation="migrate")
    await world.quiet()
    strange = await shoot.get(OSCS, "strange")
    assert strange
    assert (strange.annotations[OPERATION], strange.status, strange.finalizers) == ("migrate", {}, ())


def migrated(object: Object | None) -> bool:
    if object is None or OPERATION in object.annotations:
        return False
    return (object.last_operation["type"], object.last_operation["state"]) == ("Migrate", "Succeeded")


@rule("X-4")
async def test_a_recreated_object_gets_a_new_secret(world: KindWorld) -> None:
    shoot = await world.shoot()
    await provision(shoot, "init", INLINE)
    await shoot.delete(OSCS, "init")
    await shoot.until_gone(OSCS, "init")
    anew = await provision(shoot, "init", INLINE)
    await world.quiet()
    found = await shoot.get(SECRETS, "osc-result-init")
    assert found
    assert [owner["uid"] for owner in found.metadata["ownerReferences"]] == [anew.uid]


async def test_data_too_large_for_a_secret_is_reported(world: KindWorld) -> None:
    shoot = await world.shoot()
    large = {"path": "/a", "content": {"inline": {"encoding": "", "data": "x" * 1_100_000}}}
    await shoot.create(OSCS, "init", {"purpose": "provision", "files": [large]})
    found = await shoot.until_failed(OSCS, "init")
    assert "and a Secret holds 1048576" in report(found)
    await shoot.create(OSCS, "original", {"purpose": "reconcile", "files": [large]})
    await shoot.until_ready(OSCS, "original")


async def test_recorded_runs_do_the_same_again_without_the_secrets(world: KindWorld) -> None:
    since = datetime.now(UTC) - timedelta(seconds=5)
    shoot = await world.shoot()
    await shoot.secret("source", key=b"hidden")
    await shoot.secret("unfit", key=b"\0")
    await provision(shoot, "init", from_secret("source", "key"), INLINE)
    unfit = from_secret("unfit", "key", transmitUnencoded=True)
    for name, file in (("unfit", unfit), ("missing", from_secret("missing", "key"))):
        await shoot.create(OSCS, name, {"purpose": "provision", "files": [file]})
        await shoot.until_failed(OSCS, name)
    await world.quiet()
    recording = await world.recorded(since, "operatingsystemconfig")
    result = await replay.replayed(recording)
    assert result.differences == []
    assert result.replayed >= 3


async def test_many_share_one_secret(world: KindWorld) -> None:
    shoot = await world.shoot()
    await shoot.secret("shared", key=b"the same for all")
    spec = {"purpose": "provision", "files": [from_secret("shared", "key")]}
    names = [f"init-{number}" for number in range(12)]
    await asyncio.gather(*(shoot.create(OSCS, name, spec) for name in names))
    for name in names:
        await shoot.until_ready(OSCS, name)
    scripts = {await script(shoot, f"osc-result-{name}") for name in names}
    assert len(scripts) == 1
    assert base64.b64encode(b"the same for all") in scripts.pop()


async def test_data_of_secrets_is_neither_stored_nor_reported(
    plane: ControlPlane, nats: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    markers = Markers()
    caplog.set_level("DEBUG")
    async with kind_world(plane, nats, "operatingsystemconfig") as world:
        shoot = await world.shoot()
        await shoot.secret("source", raw=markers.new("raw").encode(), encoded=markers.new("b64").encode())
        await shoot.secret("unfit", key=markers.new("unfit").encode() + b"\0")
        raw = from_secret("source", "raw", "/etc/raw", transmitUnencoded=True)
        await provision(shoot, "init", raw, from_secret("source", "encoded"))
        inside = await script(shoot, "osc-result-init")
        unfit = from_secret("unfit", "key", transmitUnencoded=True)
        await shoot.create(OSCS, "unfit", {"purpose": "provision", "files": [unfit]})
        refused = await shoot.until(OSCS, "unfit", failed)
        assert refused
        assert "the key 'key' of Secret unfit holds a NUL byte" in report(refused)
        reported = repr([refused.raw, (await shoot.until_ready(OSCS, "init")).raw]).encode()
        await world.quiet()
    nats.stop()
    kept = b"".join(path.read_bytes() for path in (tmp_path / "nats").rglob("*") if path.is_file())
    assert markers.in_(inside) == {"raw", "b64"}  # the search would find what is there
    assert shoot.namespace.encode() in kept
    assert markers.in_(kept) == set()
    assert markers.in_(caplog.text.encode()) == set()
    assert markers.in_(reported) == set()
