"""The demo of kinds that create objects, on simulated nodes."""

from __future__ import annotations

import re

import pytest

from commands.demo import showkinds
from commands.demo.stage import Scene
from sandbox.doctor import webhooks
from tests.host.simulated.world import Sandbox
from tests.support.running import eventually
from windowbox.clients.kubernetes import kube


def shown(sandbox: Sandbox, capsys: pytest.CaptureFixture[str]) -> str:
    showkinds.show_owners(Scene(sandbox.folder, sandbox.state))
    return capsys.readouterr().out


def test_the_demo_of_kinds_cleans_up_and_repeats(
    sandbox: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    for said in (shown(sandbox, capsys), shown(sandbox, capsys)):
        assert "Infrastructure shoot--demo--show/one: Succeeded after" in said
        assert "Namespace infra-shoot--demo--show" in said
        assert "NetworkPolicy provider-local-deny-all deleted by hand: back after" in said
        assert "Bastion shoot--demo--show/one: Succeeded, at 127." in said
        assert "its SSH server answers node=simulated-" in said
        assert "Service bastion-one deleted by hand: back after" in said
        for deleted in ("Bastion", "Infrastructure"):
            assert re.search(rf"Deleting {deleted} shoot--demo--show/one\n      gone after", said)
        assert said.rstrip().endswith("nothing of it is left")


def test_the_demo_of_records_asks_the_name_server(
    sandbox: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its processes have rights enough, and no more: none has ended, or was refused anything."""
    showkinds.show_records(Scene(sandbox.folder, sandbox.state))
    first = capsys.readouterr().out
    assert re.search(r"created .* → Succeeded .* → dig: 172\.18\.255\.224 ", first)
    showkinds.show_records(Scene(sandbox.folder, sandbox.state))
    assert "was there already, Succeeded → dig: 172.18.255.224" in capsys.readouterr().out
    # Other tests kill servers of this sandbox, but none of these.
    assert [sandbox.restarts(name) for name in ("runner-1", "admit-1", "admission-1")] == [0, 0, 0]
    assert "forbid" not in (sandbox.folder / "logs" / "runner-1.log").read_text().lower()


def test_the_demo_of_webhooks_shows_what_was_stored(
    sandbox: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        showkinds.show_webhook(Scene(sandbox.folder, sandbox.state))
        assert "asked for failSwapOn: true, stored failSwapOn: false" in capsys.readouterr().out


async def test_doctor_finds_both_processes_that_answer_webhooks(sandbox: Sandbox) -> None:
    async def verdicts() -> list[tuple[str, str]]:
        return [(one.what.rpartition("-extension-")[2], one.verdict) async for one in webhooks.findings(seed)]

    async def both() -> bool:
        found = await verdicts()
        return found == [("provider-local", "ok"), ("admission-local", "ok"), ("admission-local", "ok")]

    async with kube.from_file(sandbox.kubeconfig) as seed:
        await eventually(both, 60)
