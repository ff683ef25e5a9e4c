"""Results of Go's libraries for texts: those of Kubernetes 1.36.3, and go-systemd 22.7.0.

Each line of the file is a text, and what Go makes of it when the webhook's field is set, or that Go refuses
it. `kept` marks texts that Go refuses only for the type of a field that the webhook does not edit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from webhooks.mutators import componentconfig, operatingsystemconfig

_LINES = (Path(__file__).parent / "vectors.jsonl").read_text().splitlines()
VECTORS: list[dict[str, Any]] = [json.loads(line) for line in _LINES]

_EDITS: dict[str, Callable[[str], str]] = {
    "kubelet": componentconfig.allow_swap,
    "kubeproxy": componentconfig.keep_conntrack,
    "unit": operatingsystemconfig.normalised,
}
_RULES = {"unit": "WW-41", "kubelet": "WW-43+WW-44+WW-45", "kubeproxy": "WW-92", "yaml": "WW-45"}
_BEFORE = {
    "kubelet": ("failSwapOn: false", "failSwapOn: true"),
    "kubeproxy": ("maxPerCore: 0", "maxPerCore: 131072"),
}


def vectors(field: str, *kinds: str, rules: str = "") -> list[Any]:
    """The vectors of these kinds that have the field."""
    return [
        pytest.param(one, id=f"{rules or _RULES[one['of']]}-{at}")
        for at, one in enumerate(VECTORS, 1)
        if one["of"] in kinds and field in one
    ]


@pytest.mark.parametrize("vector", vectors("becomes", "unit"))
def test_a_unit_is_normalised_as_by_go(vector: dict[str, Any]) -> None:
    assert operatingsystemconfig.normalised(vector["text"]) == vector["becomes"]


@pytest.mark.parametrize("vector", vectors("becomes", "kubelet", "kubeproxy"))
def test_text_that_go_wrote_changes_in_one_value(vector: dict[str, Any]) -> None:
    after, before = _BEFORE[vector["of"]]
    assert vector["becomes"].count(after) == 1
    given = vector["becomes"].replace(after, before)
    assert _EDITS[vector["of"]](given) == vector["becomes"]


@pytest.mark.parametrize("vector", vectors("becomes", "yaml"))
def test_fields_are_kept_as_go_wrote_them(vector: dict[str, Any]) -> None:
    text = vector["becomes"] if vector["text"][0] == "{" else f"unknown:\n{vector['becomes']}"
    given = f"apiVersion: kubelet.config.k8s.io/v1beta1\nfailSwapOn: true\n{text}kind: KubeletConfiguration\n"
    found = componentconfig.allow_swap(given)
    assert found == given.replace("failSwapOn: true", "failSwapOn: false")


@pytest.mark.parametrize(
    "vector", [*vectors("becomes", "kubelet", "kubeproxy"), *vectors("kept", "kubelet", "kubeproxy")]
)
def test_an_edited_text_keeps_its_other_fields(vector: dict[str, Any]) -> None:
    found = yaml.load(_EDITS[vector["of"]](vector["text"]), Loader=yaml.BaseLoader)
    said = yaml.load(vector["text"], Loader=yaml.BaseLoader) or {}
    if vector["of"] == "kubelet":
        head = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
        edit: dict[str, Any] = {"failSwapOn": "false"}
    else:
        head = {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration"}
        edit = {"conntrack": said.get("conntrack", {}) | {"maxPerCore": "0"}}
    assert found == (said if said != "null" else {}) | head | edit


@pytest.mark.parametrize("vector", vectors("refused", "unit", "kubelet", "kubeproxy"))
def test_a_text_that_go_refuses_is_refused(vector: dict[str, Any]) -> None:
    with pytest.raises((operatingsystemconfig.BadUnit, componentconfig.Unreadable)):
        _EDITS[vector["of"]](vector["text"])


@pytest.mark.parametrize("vector", vectors("becomes", "unit", "kubelet", "kubeproxy", rules="WW-12"))
def test_a_second_edit_changes_nothing(vector: dict[str, Any]) -> None:
    edit = _EDITS[vector["of"]]
    assert edit(vector["becomes"]) == vector["becomes"]
    assert edit(edit(vector["text"])) == edit(vector["text"])
