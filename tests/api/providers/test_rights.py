"""The least rights: who has them, and that windowbox does with less than it could take."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.providers import rights
from tests.api.providers.test_errors import infrastructure
from tests.support.kindworld import KindWorld
from windowbox.models.refs import INFRASTRUCTURES
from windowbox.rights import rbac

pytestmark = pytest.mark.serves("infrastructure")

ROOT = Path(__file__).parents[3]


def test_the_file_of_rights_is_up_to_date() -> None:
    assert (ROOT / "deploy" / "rbac.yaml").read_text() == rbac.text(), "run `make generate`"


@pytest.mark.parametrize("role", ["watcher", "worker", "patcher"])
def test_namespaces_pods_and_services_are_made_by_nobody_but_provider_credentials(role: str) -> None:
    made = [
        f"{verb} {resource}"
        for rule in rbac.RULES[role]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if resource in ("namespaces", "pods", "services") and verb not in ("get", "list", "watch")
    ]
    assert made == []


@pytest.mark.parametrize("role", ["watcher", "worker", "patcher"])
def test_clients_by_file_may_learn_which_cluster_is_theirs(role: str) -> None:
    rules = [
        rule for rule in rbac.RULES[role] if "namespaces" in rule["resources"] and "get" in rule["verbs"]
    ]
    assert [rule.get("resourceNames") for rule in rules] in ([["kube-system"]], [None])


def test_no_role_may_do_everything() -> None:
    for role, rules in rbac.RULES.items():
        for rule in rules:
            assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"]), role


@pytest.mark.parametrize("resource", ["namespaces", "networkpolicies", "ippools"])
async def test_each_right_of_the_provider_is_needed(world: KindWorld, resource: str) -> None:
    rules = [
        {**rule, "resources": [one for one in rule["resources"] if one != resource]}
        for rule in rbac.RULES["provider"]
    ]
    fewer = [rule for rule in rules if rule["resources"]]
    shoot = await world.shoot()
    with rights.changed(world.plane, "provider", fewer):
        await infrastructure(shoot)
        found = await shoot.until_failed(INFRASTRUCTURES, "local")
        assert found.status["lastError"]["codes"] == ["ERR_INFRA_UNAUTHORIZED"]
        assert f'resource "{resource}"' in found.status["lastError"]["description"]
    await shoot.ask(INFRASTRUCTURES, "local")
    await shoot.until_ready(INFRASTRUCTURES, "local")
    await shoot.delete(INFRASTRUCTURES, "local")
    await shoot.until_gone(INFRASTRUCTURES, "local")
