"""Sites of clouds for plans of their Infrastructures, from the shipped examples."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clouds import table
from clouds.frame.decoding import parse
from clouds.frame.gardenobjects import ProfileSpec, ShootSpec
from clouds.frame.infrastructure import Plan, Planner, Site
from clouds.frame.inventory import CloudObject, Found
from tests.support import cloudshoots

ID = "shoot--garden--example"
"""The technical id of the Shoot."""


def site(cloud: str, changes: Mapping[str, Any] | None = None, **more: Any) -> Site:
    """The site of the example, with `changes` of its config such as `networks/internal`, and other fields."""
    given = cloudshoots.example(cloud)
    spec, account = given["Shoot"]["spec"], table.cloud(cloud).account
    secret = {name: base64.b64decode(value) for name, value in given["Secret"]["data"].items()}
    found = Site(
        account=f"{cloud}-000000000001",
        technical_id=ID,
        region=spec["region"],
        config=cloudshoots.changed(spec["provider"]["infrastructureConfig"], dict(changes or {})),
        networking=parse(ShootSpec, spec, "the Shoot").networking,
        profile=parse(ProfileSpec, given["CloudProfile"]["spec"], "the CloudProfile"),
        ssh_public_key="ssh-rsa AAAA example",
        credentials=account(secret).shown,
    )
    return replace(found, **more)


def planner(cloud: str) -> Planner:
    return table.cloud(cloud).infrastructure


def found(*objects: CloudObject) -> Found:
    """Existing objects by kind and id."""
    return {(one.kind, one.id): one for one in objects}


def planned(cloud: str, changes: Mapping[str, Any] | None = None, *objects: CloudObject, **more: Any) -> Plan:
    """The plan of the example with these changes, beside these existing objects."""
    return planner(cloud).plan(site(cloud, changes, **more), found(*objects))


def by_name(plan: Plan, kind: str) -> dict[str, CloudObject]:
    """The planned objects of one kind."""
    return {one.name: one for one in plan.objects if one.kind == kind}
