"""The namespace of a Shoot where a release is installed, and what its webhooks change there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from sandbox import roles
from sandbox.servers import kubeconfigs
from sandbox.shipped import EXAMPLES
from tests.support.worldwithnodes import NodeWorld
from windowbox.errors import Refused, Unreachable

SHOOT = "shoot--demo--one"
_PAUSE = 0.1
"""Seconds between two requests."""


@contextmanager
def shoot(node: NodeWorld) -> Iterator[str]:
    """The namespace of a Shoot, its Cluster and its provider Secret, which leads to the same cluster."""
    node.kubectl("apply", "--filename=-", stdin=(EXAMPLES / "shoot.yaml").read_text())
    node.kubectl("label", "namespace", SHOOT, "shoot.gardener.cloud/provider=local")
    secret = kubeconfigs.secret(SHOOT, roles.provider_kubeconfig(node.sandbox.folder))
    node.kubectl("apply", "--filename=-", stdin=secret)
    configured = "mutatingwebhookconfiguration/gardener-extension-provider-local"
    node.kubectl("wait", "--for=create", configured, "--timeout=60s")
    yield SHOOT
    node.kubectl("delete", "infrastructures,deployments", "--all", f"--namespace={SHOOT}", "--timeout=50s")
    node.kubectl("delete", "namespace", SHOOT, "--timeout=50s")


def scheduler(namespace: str) -> dict[str, Any]:
    """A Deployment that the webhook for control planes changes; see `is_changed`."""
    labels = {"app": "kubernetes"}
    mutated = {"provider.extensions.gardener.cloud/mutated-by-controlplane-webhook": "true"}
    container = {"name": "kube-scheduler", "image": "none.invalid/none:1"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "kube-scheduler", "namespace": namespace, "labels": mutated},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def is_changed(made: dict[str, Any]) -> bool:
    labels = made["spec"]["template"]["metadata"]["labels"]
    return bool(labels.get("injected-by") == "provider-local")


@dataclass
class Asked:
    """What became of requests for which an API server has to ask webhooks."""

    answered: int = 0
    failed: list[str] = field(default_factory=list)


@contextmanager
def repeating(ask: Callable[[], str]) -> Iterator[Asked]:
    """A client that never rests; `ask` returns what was wrong with an answer."""
    seen, ending = Asked(), threading.Event()

    def go_on() -> None:
        while not ending.wait(_PAUSE):
            if problem := ask():
                seen.failed.append(problem)
            seen.answered += 1

    thread = threading.Thread(target=go_on, name="webhook requests")
    thread.start()
    try:
        yield seen
    finally:
        ending.set()
        thread.join(60)


def asking(node: NodeWorld, namespace: str) -> AbstractContextManager[Asked]:
    """A client that creates Deployments all the time, which are not kept."""
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments?dryRun=All"

    def ask() -> str:
        began = time.monotonic()
        try:
            changed = is_changed(node.api.create(path, scheduler(namespace)))
        except (Refused, Unreachable) as error:
            return f"{error} after {time.monotonic() - began:.1f} s"
        return "" if changed else "it was not changed"

    return repeating(ask)
