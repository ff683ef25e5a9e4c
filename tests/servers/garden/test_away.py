"""A garden that is away when a worker starts, and denies access later."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from commands.roles import gardenaccess
from tests.support import apiservers, webserver
from windowbox.errors import Forbidden
from windowbox.settings.clustersettings import GardenSettings


@contextlib.asynccontextmanager
async def garden(folder: Path, *statuses: int) -> AsyncIterator[GardenSettings]:
    """A garden that answers with these statuses, and then as it should."""
    left = list(statuses)

    async def answer(request: web.Request) -> web.Response:
        status = left.pop(0) if left else 200
        kind = "Seed" if status == 200 else "Status"
        return web.json_response({"kind": kind, "metadata": {"name": "local"}}, status=status)

    async with webserver.serving(web.route("*", "/one/apis/{path:.*}", answer)) as url:
        (folder / "kubeconfig").write_text(apiservers.kubeconfig(url, "one"))
        yield GardenSettings(kubeconfig=folder / "kubeconfig", seed="local")


async def test_a_worker_starts_while_the_garden_is_away(tmp_path: Path) -> None:
    async with garden(tmp_path, 503) as settings:
        assert not await gardenaccess.proven(settings)
        assert _works() == 0
        assert await gardenaccess.proven(settings)
        assert _works() == 1


async def test_a_garden_that_denies_access_ends_a_worker_that_starts(tmp_path: Path) -> None:
    async with garden(tmp_path, 403) as settings:
        with pytest.raises(Forbidden):
            await gardenaccess.proven(settings)


async def test_a_garden_that_denies_access_ends_no_worker_that_is_ready(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gardenaccess, "_FIRST", 0.01)
    async with garden(tmp_path, 503, 403) as settings:
        await gardenaccess.prove_later(settings)
    reported = [one.levelno for one in caplog.records if "access to the garden" in one.message]
    assert reported[:2] == [logging.WARNING, logging.ERROR]
    assert _works() == 1


def _works() -> float | None:
    return REGISTRY.get_sample_value("windowbox_garden_access", {"kind": "Seed"})
