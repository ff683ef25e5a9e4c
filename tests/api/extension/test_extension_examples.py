"""The Extensions of the contract's examples, applied as they stand there."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from tests.support.kindworld import Client, KindWorld
from tests.support.resourcemanager import ResourceManager
from tests.support.rules import rule
from windowbox.models.objects import Object
from windowbox.models.refs import EXTENSIONS, MANAGED_RESOURCES

CONTRACT = Path(__file__).resolve().parents[4] / "shared" / "contract" / "extensions.md"
TYPES = ("local-ext-seed", "local-ext-shoot", "local-ext-shoot-after-worker")
REFERENCE = "reference.resources.gardener.cloud/secret-"

pytestmark = [pytest.mark.serves(*TYPES), pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def examples() -> tuple[list[Any], list[Any]]:
    """What clients write, and what they find afterwards."""
    if not CONTRACT.exists():
        pytest.skip("the contract's examples are not here")
    section = CONTRACT.read_text().split("\n## A.11 ")[1].split("\n## ")[0]
    before, after = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    return list(yaml.safe_load_all(before)), list(yaml.safe_load_all(after))


@pytest_asyncio.fixture(loop_scope="module")
async def shoot(world: KindWorld) -> AsyncIterator[Client]:
    made = await world.shoot("shoot--local--local")
    async with ResourceManager(made).at_work():
        yield made
        for type_ in TYPES:
            await made.delete(EXTENSIONS, type_)
            await made.until_gone(EXTENSIONS, type_)


@pytest.mark.long  # unit/extension/test_managedresources.py has the objects, test_extensions.py the status
@rule("A.11", "M-3")
async def test_extensions_become_ready_as_the_examples_say(
    shoot: Client, examples: tuple[list[Any], list[Any]]
) -> None:
    before, after = examples
    for extension in before:
        await shoot.kube.create(EXTENSIONS, shoot.namespace, extension)
    for type_ in TYPES:
        found = await shoot.until_ready(EXTENSIONS, type_)
        example = json.dumps(after[0]).replace("local-ext-shoot", type_)
        assert _masked(found, "name", "namespace", "generation", "annotations", "finalizers") == json.loads(
            example.replace(after[0]["status"]["lastOperation"]["lastUpdateTime"], "a time")
        )
    for example in after[1:]:
        managed = await shoot.get(MANAGED_RESOURCES, example["metadata"]["name"])
        assert managed
        metadata = {name: managed.metadata[name] for name in example["metadata"]}
        shown = {**example, "metadata": metadata, "spec": managed.spec}
        assert _hashes_left_out(shown) == _hashes_left_out(example)
        assert managed.labels == {}
        _check_reference(managed)


def _masked(found: Object, *names: str) -> dict[str, Any]:
    status = json.loads(json.dumps(found.status))
    status["lastOperation"]["lastUpdateTime"] = "a time"
    head = {"apiVersion": found.raw["apiVersion"], "kind": found.raw["kind"]}
    return {**head, "metadata": {name: found.metadata[name] for name in names}, "status": status}


def _hashes_left_out(example: dict[str, Any]) -> dict[str, Any]:
    """The example is of other data, it says, so its checksums are other ones."""
    left: dict[str, Any] = json.loads(re.sub(r"-[0-9a-f]{8}\"", '-hash"', json.dumps(example)))
    return left


def _check_reference(managed: Object) -> None:
    (name,) = (ref["name"] for ref in managed.spec["secretRefs"])
    hashed = hashlib.sha256(name.encode()).hexdigest()[:8]
    assert managed.annotations == {REFERENCE + hashed: name}
