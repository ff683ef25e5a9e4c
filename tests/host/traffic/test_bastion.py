"""People log in to a Bastion: through the load balancer, to an SSH server in a Pod on a real node."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial

import pytest

from sandbox.nodes import sshimage
from tests.host.traffic import bastion, clients
from tests.host.traffic.bastion import Bastion, Key
from tests.host.traffic.world import World
from tests.support import echoclient
from tests.support.rules import rule
from windowbox.models.refs import BASTIONS

_STAYS, _GOES, _COMES, _NEVER = "127.9.31.1", "127.9.31.130", "127.9.32.1", "127.9.33.1"


@pytest.fixture(scope="module")
def reached(traffic: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bastion]:
    """A Bastion that lets in 127.9.31.0/24."""
    if not sshimage.found() or not shutil.which("ssh"):
        pytest.skip("OpenSSH is not on this machine: install openssh-server and openssh-client")
    key = Key.made(tmp_path_factory.mktemp("ssh"))
    with bastion.shoot(traffic):
        made = bastion.created(traffic, key, "127.9.31.0/24")
        echoclient.until(partial(_logs_in, made, _STAYS))
        yield made


@rule("BA-2", "BA-3", "BA-6", "B.5")
def test_who_may_logs_in_with_the_key_of_the_user_data(reached: Bastion) -> None:
    done = reached.run(_STAYS, "whoami; cat /etc/machine/userdata")
    assert done.stdout.splitlines()[:2] == ["gardener", "#!/bin/bash -eu"]


def test_another_key_is_refused(reached: Bastion, tmp_path_factory: pytest.TempPathFactory) -> None:
    stranger = Bastion(reached.world, Key.made(tmp_path_factory.mktemp("stranger")), reached.address)
    done = stranger.run(_STAYS, "whoami")
    assert (done.returncode, done.stdout) == (255, "")
    assert "Permission denied" in done.stderr


@rule("BA-5", "B.5")
def test_who_comes_from_elsewhere_does_not_hear_a_byte(reached: Bastion) -> None:
    for _ in range(3):
        assert clients.outcome(reached.address, 22, source=_NEVER) == "closed"
    done = reached.run(_NEVER, "whoami")
    assert (done.returncode, done.stdout) == (255, "")


@rule("BA-5", "B.5")
def test_a_session_outlives_a_change_that_still_lets_it_in(reached: Bastion) -> None:
    with reached.session(_STAYS) as session:
        assert session.goes_on()
        _logs_in(reached, _GOES)
        reached.allow("127.9.31.0/25", f"{_COMES}/32")
        echoclient.until(partial(_logs_in, reached, _COMES))
        echoclient.until(partial(_is_closed, reached, _GOES))
        assert session.goes_on()
        assert clients.outcome(reached.address, 22, source=_NEVER) == "closed"
        assert session.goes_on()


@rule("BA-4")
def test_after_its_deletion_nobody_is_there(reached: Bastion) -> None:
    world = reached.world
    world.delete(BASTIONS.path(bastion.SHOOT, bastion.NAME))
    bastion.until(world, BASTIONS, bastion.NAME, lambda found: found is None)
    there = f"/api/v1/namespaces/infra-{bastion.SHOOT}"
    assert [world.api.read(f"{there}/{kind}")["items"] for kind in ("pods", "services", "secrets")] == [
        [],
        [],
        [],
    ]
    echoclient.until(partial(_is_refused, reached))


def _logs_in(made: Bastion, source: str) -> None:
    done = made.run(source, "echo in")
    assert done.stdout == "in\n", done.stderr


def _is_closed(made: Bastion, source: str) -> None:
    assert clients.outcome(made.address, 22, source=source) == "closed"


def _is_refused(made: Bastion) -> None:
    assert clients.outcome(made.address, 22, source=_STAYS) == "refused"
