"""Finalizers on Secrets that other clients write at the same time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import pytest

from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Conflict, TransientError
from windowbox.models.objects import Object
from windowbox.models.refs import Resource
from workers.core.owned.targets import TargetCluster
from workers.core.recorder import Recorder
from workers.kinds.backups import backupsecrets
from workers.kinds.backups.backupsecrets import SecretName

SECRET = SecretName("garden", "credentials")


class Busy:
    """A Secret in an API, which another client changes after each of our first reads (`rivals`)."""

    def __init__(self, rivals: int, finalizers: list[str]) -> None:
        self.rivals = rivals
        self.version = 1
        self.finalizers = finalizers

    async def find(self, resource: Resource, namespace: str, name: str) -> Object:
        head = {"uid": "u", "resourceVersion": str(self.version), "finalizers": list(self.finalizers)}
        if self.rivals:
            self.rivals -= 1
            self.version += 1
            self.finalizers = [*self.finalizers, f"rival-{self.rivals}"]
        return Object({"metadata": head})

    async def merge(self, resource: Resource, namespace: str, name: str, patch: Mapping[str, Any]) -> Object:
        if patch["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict("the object has been modified")
        self.version += 1
        self.finalizers = patch["metadata"]["finalizers"]
        return Object({})

    async def api(self) -> Kube:
        return cast(Kube, self)


class Open:
    """A recorder that records nothing."""

    async def call(
        self, door: str, request: Any, act: Callable[..., Awaitable[Any]], *args: Any, effect: bool = False
    ) -> Any:
        return await act(*args)


def place(busy: Busy) -> TargetCluster:
    return TargetCluster("runtime", cast(Recorder, Open()), cast(Any, busy))


@pytest.mark.parametrize("rivals", [0, 1, 4])
async def test_concurrent_writes_to_a_secret_stay(rivals: int) -> None:
    busy = Busy(rivals, ["theirs"])
    await backupsecrets.add_finalizer(place(busy), SECRET, "ours")
    theirs = ["theirs", *(f"rival-{number}" for number in reversed(range(rivals)))]
    assert busy.finalizers == [*theirs, "ours"]
    busy.rivals = 1
    await backupsecrets.remove_finalizer(place(busy), SECRET, "ours")
    assert busy.finalizers == [*theirs, "rival-0"]


async def test_endless_conflicts_are_left_to_a_later_run() -> None:
    busy = Busy(100, ["theirs"])
    with pytest.raises(TransientError, match="changed by others again and again"):
        await backupsecrets.add_finalizer(place(busy), SECRET, "ours")
    assert "ours" not in busy.finalizers


async def test_an_existing_finalizer_is_not_written_again() -> None:
    busy = Busy(0, ["ours"])
    await backupsecrets.add_finalizer(place(busy), SECRET, "ours")
    assert busy.version == 1
