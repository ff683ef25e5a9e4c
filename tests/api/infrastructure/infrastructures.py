"""Infrastructures as gardenlet makes them, and what to look for where their machines live."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.kindworld import CLOUDPROVIDER, Client
from windowbox.models.objects import Object
from windowbox.models.refs import INFRASTRUCTURES, IP_POOLS, NAMESPACES, NETWORK_POLICIES, Resource

ALLOW = "provider-local-allow-machine-pods"
DENY = "provider-local-deny-all"
BALANCERS = "allow-load-balancers"


def examples(heading: str) -> list[Any]:
    """The YAML documents of a chapter of the contract."""
    contract = Path(__file__).parents[4] / "shared" / "contract" / "extensions.md"
    if not contract.exists():
        pytest.skip("the contract is not beside the repository")
    text = contract.read_text()
    chapter = text[text.index(f"\n## {heading} ") + 1 :]
    blocks = chapter[: chapter.index("\n## ")].split("```yaml\n")[1:]
    return [found for block in blocks for found in yaml.safe_load_all(block.split("```")[0]) if found]


def spec(shoot: Client, **more: Any) -> dict[str, Any]:
    return {"region": "local", "secretRef": {"name": CLOUDPROVIDER, "namespace": shoot.namespace}} | more


async def infrastructure(shoot: Client, **more: Any) -> Object:
    return await shoot.create(INFRASTRUCTURES, "local", spec(shoot, **more))


async def ready(shoot: Client) -> Client:
    """A Shoot's Infrastructure is made; what is in its provider cluster."""
    await infrastructure(shoot)
    await shoot.until_ready(INFRASTRUCTURES, "local")
    await shoot.world.quiet()
    return behind(shoot)


def behind(shoot: Client) -> Client:
    return shoot.world.client(f"infra-{shoot.namespace}")


def pool(shoot: Client, family: str = "ipv4") -> str:
    return f"shoot-machine-pods-{shoot.namespace}-{family}"


async def made(shoot: Client) -> list[tuple[Resource, str]]:
    """What of a Shoot is in this very cluster."""
    there = behind(shoot)
    named: list[tuple[Resource, str]] = [(NAMESPACES, there.namespace)]
    named += [(IP_POOLS, pool(shoot, family)) for family in ("ipv4", "ipv6")]
    named += [(NETWORK_POLICIES, name) for name in (ALLOW, DENY, BALANCERS)]
    return [(kind, name) for kind, name in named if await there.get(kind, name)]


async def until_nothing_is_left(shoot: Client) -> None:
    """Wait for the namespace controller and the garbage collector, as no run does."""
    there = behind(shoot)
    await there.until_gone(NAMESPACES, there.namespace)
    for family in ("ipv4", "ipv6"):
        await there.until_gone(IP_POOLS, pool(shoot, family))
    assert await made(shoot) == []


def says(state: str, words: str) -> Callable[[Object | None], bool]:
    """Whether an Infrastructure is in this state, and says so."""

    def holds(found: Object | None) -> bool:
        last = found.last_operation if found else {}
        return last.get("state") == state and words in str(last.get("description"))

    return holds
