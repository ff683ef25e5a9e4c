"""What Go's libraries make of texts: those of Kubernetes 1.36.3, and go-systemd 22.7.0.

Each line of the file is a text, and what becomes of it when the webhook's field is set.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from webhooks.configs import componentconfig, goyaml, units

_LINES = (Path(__file__).parent / "vectors.jsonl").read_text().splitlines()
VECTORS: list[dict[str, Any]] = [json.loads(line) for line in _LINES]

_RULES = {"unit": "WW-41", "kubelet": "WW-43+WW-44+WW-45", "kubeproxy": "WW-92", "yaml": "WW-45"}
_MAKERS: dict[str, Callable[[str], str]] = {
    "unit": units.normalised,
    "kubelet": componentconfig.for_machine,
    "kubeproxy": componentconfig.for_containers,
    "yaml": lambda text: goyaml.dump(json.loads(text)),
}


@pytest.mark.parametrize(
    "vector", [pytest.param(one, id=f"{_RULES[one['of']]}-{at}") for at, one in enumerate(VECTORS, 1)]
)
def test_a_text_becomes_what_go_makes_of_it(vector: dict[str, Any]) -> None:
    make = _MAKERS[vector["of"]]
    if "refused" in vector:
        with pytest.raises((units.BadUnit, componentconfig.Unreadable)):
            make(vector["text"])
        return
    assert make(vector["text"]) == vector["becomes"]


@pytest.mark.parametrize(
    "vector",
    [
        pytest.param(one, id=f"WW-12-{at}")
        for at, one in enumerate(VECTORS, 1)
        if "becomes" in one and one["of"] != "yaml"
    ],
)
def test_a_text_that_was_made_once_stays(vector: dict[str, Any]) -> None:
    assert _MAKERS[vector["of"]](vector["becomes"]) == vector["becomes"]
