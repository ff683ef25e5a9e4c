"""Configuration files with `apiVersion` and `kind`: read without defaults, changed, written again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from webhooks.configs import goyaml, kubelet, kubeproxy, typed

_LONGEST = 256 * 1024
_KEPT = 64
"""Texts whose result is remembered: all machines of a pool have the same."""


class Unreadable(Exception):
    """The text is not such a configuration; the message tells why."""


@dataclass(frozen=True)
class ComponentConfig:
    """A kind of configuration."""

    api_version: str
    kind: str
    table: typed.Table

    def read(self, text: str) -> dict[str, Any]:
        """Every known field, empty if the text does not mention it. Unknown fields are left out."""
        if len(text) > _LONGEST:
            raise Unreadable(f"it is longer than {_LONGEST // 1024} KiB")
        try:
            content = goyaml.load(text) or {}
            if not isinstance(content, dict):
                raise Unreadable(f"it has to be a mapping with the fields of a {self.kind}")
            self._check(content)
            given = {**content, "apiVersion": self.api_version, "kind": self.kind}
            config = typed.typed(given, self.kind, self.table)
        except (goyaml.NotYaml, typed.WrongType) as error:
            raise Unreadable(str(error)) from error
        assert isinstance(config, dict)
        return config

    def write(self, config: dict[str, Any]) -> str:
        return goyaml.dump(typed.encoded(config, self.kind, self.table))

    def _check(self, content: dict[str, object]) -> None:
        for field, wanted in (("apiVersion", self.api_version), ("kind", self.kind)):
            if content.get(field) not in (None, "", wanted):
                raise Unreadable(f"{field} is {content[field]!r:.50}: make it {wanted}")


def _edited(config: ComponentConfig, change: Callable[[dict[str, Any]], None]) -> Callable[[str], str]:
    @lru_cache(maxsize=_KEPT)
    def edited(text: str) -> str:
        content = config.read(text)
        change(content)
        return config.write(content)

    return edited


def _allow_swap(config: dict[str, Any]) -> None:
    config["failSwapOn"] = False


def _keep_conntrack(config: dict[str, Any]) -> None:
    # kube-proxy cannot write nf_conntrack_max inside the container that a machine is.
    config["conntrack"]["maxPerCore"] = 0


KUBELET = ComponentConfig("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration", kubelet.TABLE)
KUBE_PROXY = ComponentConfig("kubeproxy.config.k8s.io/v1alpha1", "KubeProxyConfiguration", kubeproxy.TABLE)

for_machine = _edited(KUBELET, _allow_swap)
"""The kubelet's configuration such that it starts although the host swaps."""
for_containers = _edited(KUBE_PROXY, _keep_conntrack)
"""kube-proxy's configuration such that it leaves the host's connection tracking alone."""
