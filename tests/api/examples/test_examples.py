"""A real API server accepts the files of examples/, strictly, in their order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import servers, worldwithnodes
from tests.support.servers import ControlPlane

EXAMPLES = Path(__file__).parents[3] / "examples"
BUILT_UPON = EXAMPLES / "shoot.yaml"


SHOWN = sorted(EXAMPLES.glob("*.yaml"))
APPLY = ("apply", "--validate=strict")


def manifests() -> list[dict[str, Any]]:
    return [one for path in SHOWN for one in yaml.safe_load_all(path.read_text()) if one]


@pytest.fixture(scope="module")
def applied(plane: ControlPlane) -> Iterator[ControlPlane]:
    """An API server with all examples."""
    servers.need("kubectl")
    files = [f"--filename={path}" for path in (BUILT_UPON, *SHOWN)]
    worldwithnodes.kubectl(plane.kubeconfig, *APPLY, *files)
    yield plane
    # Other tests use the garden's namespace, too.
    rest = [one for one in manifests() if one["kind"] != "Namespace"]
    delete = ("delete", "--ignore-not-found", "--wait=false", "--filename=-")
    worldwithnodes.kubectl(plane.kubeconfig, *delete, stdin=yaml.safe_dump_all(rest))


each = pytest.mark.parametrize("example", SHOWN, ids=lambda path: path.stem)


@each
def test_an_example_is_applied_idempotently(applied: ControlPlane, example: Path) -> None:
    again = worldwithnodes.kubectl(applied.kubeconfig, *APPLY, f"--filename={example}").splitlines()
    assert again
    assert [line for line in again if not line.endswith(" unchanged")] == []


@each
def test_the_head_of_an_example_names_its_command(example: Path) -> None:
    head = example.read_text().partition("apiVersion")[0]
    assert all(line.startswith("#") for line in head.splitlines())
    assert f"kubectl apply -f examples/{example.name}" in head or "kubectl apply -f`" in head


def test_commands_in_examples_name_objects_that_exist() -> None:
    for path in SHOWN:
        text = path.read_text()
        if path != BUILT_UPON and "shoot--demo--one" in text:
            assert re.search("first everything that examples/(shoot|infrastructure).yaml says", text)
        for namespace in re.findall(r"-n (\S+)", text):
            assert namespace.removeprefix("infra-") == "shoot--demo--one"
