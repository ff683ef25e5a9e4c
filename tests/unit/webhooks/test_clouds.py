"""The admission of clouds: which objects it is called for, what it reads, and what it answers."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support import cloudobjects
from tests.support.admitted import DELETED
from tests.support.cases import cases
from tests.support.cloudobjects import NAMESPACE, one, provider, shoot
from tests.support.reviews import admission_review, changed
from webhooks import answering, journal
from webhooks.answering import Answer, Asked
from webhooks.review import Context, Found, Wanted
from webhooks.server import Decision
from webhooks.table import WEBHOOKS
from windowbox.models.clouds import IN_GARDENS
from windowbox.rights import webhookconfigurations as configurations
from windowbox.settings.webhooksettings import WebhookSettings

Object = dict[str, Any]
CLOUDS = [one.type for one in IN_GARDENS]
each_cloud = pytest.mark.parametrize("cloud", [pytest.param(one, id=f"ALL-3+{one}") for one in CLOUDS])
with_status = pytest.mark.parametrize("cloud", [one for one in CLOUDS if one != "alicloud"])


def existing(cloud: str) -> dict[str, Object]:
    """Everything that a review may look up, by the keys of lookups."""
    return {
        f"cloudprofiles.core.gardener.cloud//{cloud}": one(cloud, "CloudProfile"),
        f"credentialsbindings.security.gardener.cloud/{NAMESPACE}/core-{cloud}": (
            cloudobjects.credentials_binding(cloud)
        ),
        f"secrets/{NAMESPACE}/core-{cloud}": cloudobjects.secret(cloud),
    }


def decided(
    webhook: str, object: Object, old: Object | None = None, found: dict[str, Object] | None = None
) -> tuple[Decision, list[str]]:
    """The decision, and what was looked up."""
    asked = WEBHOOKS[webhook]
    plural = next(one.resource for one in asked.registration.rules if one.kind == object["kind"])
    operation = "CREATE" if old is None else "UPDATE"
    body = json.dumps(admission_review(object, plural, operation=operation, oldObject=old)).encode()
    read = answering.read(asked, body)
    assert isinstance(read, Asked)
    known = existing(asked.registration.cloud) if found is None else found
    context = Context()
    for _ in range(8):
        try:
            answer = answering.decide(asked, read.review, context)
        except Wanted as wanted:
            key = wanted.lookup.key
            made = Found(known[key]) if key in known else Found(None, f"{key} not found", missing=True)
            context = replace(context, objects={**context.objects, key: made})
        else:
            return Decision(asked, read.review, context, answer, 0.001, 100), [*context.objects]
    raise AssertionError("too many lookups")


def answered(webhook: str, object: Object, old: Object | None = None, **more: Any) -> Answer:
    return decided(webhook, object, old, **more)[0].answer


@each_cloud
def test_webhooks_of_a_cloud_exist_only_where_a_setting_lists_it(cloud: str) -> None:
    def names(*clouds: str) -> list[str]:
        made = configurations.for_garden(WebhookSettings(), b"", clouds=clouds)
        return [
            entry["name"].removesuffix(f".{configurations.GARDEN.domain}")
            for c in made
            for entry in c["webhooks"]
        ]

    assert names() == ["mutator", "secrets.validator", "validator"]
    added = {f"{cloud}.{one}" for one in ("mutator", "secrets.validator", "validator")}
    assert {*names(cloud)} - {*names()} == added


@each_cloud
def test_objects_are_selected_by_labels(cloud: str) -> None:
    made = configurations.for_garden(WebhookSettings(), b"", clouds=[cloud])
    entries = {entry["name"]: entry for one in made for entry in one["webhooks"]}
    by_name = {
        name: entries[f"{cloud}.{name}.{configurations.GARDEN.domain}"] for name in ("mutator", "validator")
    }
    secrets = entries[f"{cloud}.secrets.validator.{configurations.GARDEN.domain}"]
    label = f"provider.extensions.gardener.cloud/{cloud}"
    assert [one["objectSelector"]["matchLabels"] for one in by_name.values()] == [{label: "true"}] * 2
    label = f"provider.shoot.gardener.cloud/{cloud}"
    assert secrets["objectSelector"] == {"matchLabels": {label: "true"}}
    kinds = {"cloudprofiles", "secretbindings", "shoots", "credentialsbindings"}
    kinds |= {"namespacedcloudprofiles"} if cloud != "alicloud" else set()
    kinds |= {"seeds"} if cloud == "gcp" else set()
    assert {one["resources"][0] for one in by_name["validator"]["rules"]} == kinds


def test_equinixmetal_has_no_admission() -> None:
    assert configurations.for_garden(WebhookSettings(), b"", clouds=["equinixmetal"]) == (
        configurations.for_garden(WebhookSettings(), b"")
    )


@each_cloud
def test_a_good_shoot_is_allowed_and_a_bad_one_denied_with_its_fields(cloud: str) -> None:
    good, bad = shoot(cloud), shoot(cloud)
    provider(bad)["infrastructureConfig"]["networks"]["wokers"] = "10.250.0.0/19"
    assert answered(f"{cloud}.validator", good) == Answer(True)
    answer = answered(f"{cloud}.validator", bad)
    assert answer.code == 403
    assert "networks.wokers is unknown" in answer.message


LOOKUPS = {
    # What validator and mutator read, in their order.
    "alicloud": ([], ["cloudprofiles", "credentialsbindings", "secrets"]),
    "aws": (["cloudprofiles"], []),
    "azure": (["cloudprofiles"], []),
    "gcp": (["cloudprofiles"], []),
    "openstack": (["credentialsbindings", "secrets", "cloudprofiles"], []),
}


@each_cloud
def test_a_review_looks_up_only_what_its_cloud_reads(cloud: str) -> None:
    for name, wanted in zip(("validator", "mutator"), LOOKUPS[cloud], strict=True):
        _, looked_up = decided(f"{cloud}.{name}", shoot(cloud))
        assert [key.partition("/")[0].partition(".")[0] for key in looked_up] == wanted


@each_cloud
def test_a_shoot_is_changed_once_and_only_where_its_cloud_changes_it(cloud: str) -> None:
    given = shoot(cloud)
    given["metadata"]["creationTimestamp"] = None
    given["status"] = {}
    given["spec"]["networking"]["type"] = "cilium"  # of calico, azure changes nothing
    answer = answered(f"{cloud}.mutator", given)
    paths = {one["path"] for one in json.loads(answer.patch)}
    assert "/spec/networking/providerConfig" in paths
    assert all(path.startswith("/spec/") for path in paths)
    assert answered(f"{cloud}.mutator", changed(given, answer)).patch == b""


@each_cloud
def test_shoots_without_workers_are_neither_checked_nor_changed(cloud: str) -> None:
    given = shoot(cloud)
    provider(given).clear()
    provider(given)["type"] = cloud
    assert answered(f"{cloud}.validator", given) == Answer(True)
    assert answered(f"{cloud}.mutator", given) == Answer(True)


@each_cloud
def test_an_object_under_deletion_is_let_go(cloud: str) -> None:
    given = shoot(cloud)
    given["metadata"].update(DELETED)
    provider(given)["infrastructureConfig"] = {}
    assert decided(f"{cloud}.validator", given)[1] == []
    assert answered(f"{cloud}.validator", given) == Answer(True)


@each_cloud
def test_profiles_secrets_and_bindings_are_checked(cloud: str) -> None:
    profile = one(cloud, "CloudProfile")
    good = (
        ("validator", profile),
        ("secrets.validator", cloudobjects.secret(cloud)),
        ("validator", cloudobjects.secret_binding(cloud)),
        ("validator", cloudobjects.credentials_binding(cloud)),
    )
    for webhook, object in good:
        assert answered(f"{cloud}.{webhook}", object) == Answer(True)
    config = {**profile["spec"]["providerConfig"], "kind": "Nonsense"}
    nothing = {**profile, "spec": {**profile["spec"], "providerConfig": config}}
    bad = (
        ("validator", nothing, "has to be a CloudProfileConfig"),
        ("secrets.validator", {**cloudobjects.secret(cloud), "data": {}}, "has to"),
    )
    for webhook, object, _ in bad:
        assert answered(f"{cloud}.{webhook}", object).code == 403
    for binding in (cloudobjects.secret_binding(cloud), cloudobjects.credentials_binding(cloud)):
        answer = answered(f"{cloud}.validator", binding, found={})
        assert (answer.code, answer.message) == (
            403,
            f"there is no Secret {NAMESPACE}/core-{cloud}: create it first",
        )


@with_status
def test_a_namespaced_profile_is_checked_beside_its_parent(cloud: str) -> None:
    good = cloudobjects.namespaced_profile(cloud)
    decision, looked_up = decided(f"{cloud}.validator", good)
    assert decision.answer == Answer(True)
    assert looked_up == [f"cloudprofiles.core.gardener.cloud//{cloud}"]
    good["spec"]["machineImages"][0]["versions"][0]["version"] = "2000.0.1"
    assert answered(f"{cloud}.validator", good).code == 403


def in_status(cloud: str) -> Object:
    """A NamespacedCloudProfile with the config of its parent in its status."""
    profile = cloudobjects.namespaced_profile(cloud)
    profile["metadata"]["generation"] = 3
    spec = {"providerConfig": one(cloud, "CloudProfile")["spec"]["providerConfig"]}
    return {**profile, "status": {"observedGeneration": 3, "cloudProfileSpec": spec}}


@with_status
def test_the_status_of_a_namespaced_profile_gets_its_images(cloud: str) -> None:
    given = in_status(cloud)
    before = json.dumps(given)
    answer = answered(f"{cloud}.mutator", given)
    after = changed(given, answer)
    assert json.dumps(given) == before
    (image,) = after["status"]["cloudProfileSpec"]["providerConfig"]["machineImages"]
    (parents,) = given["status"]["cloudProfileSpec"]["providerConfig"]["machineImages"]
    (own,) = given["spec"]["providerConfig"]["machineImages"]
    assert image["versions"] == [*parents["versions"], *own["versions"]]
    (operation,) = json.loads(answer.patch)
    assert operation["path"].startswith("/status/cloudProfileSpec/providerConfig/machineImages/0/versions/")
    assert answered(f"{cloud}.mutator", after).patch == b""


def test_versions_of_a_profile_replace_those_of_its_parent_for_the_same_architecture() -> None:
    given = in_status("gcp")
    (own,) = given["spec"]["providerConfig"]["machineImages"]
    version = one("gcp", "CloudProfile")["spec"]["providerConfig"]["machineImages"][0]["versions"][0][
        "version"
    ]
    own["versions"] = [
        {"version": version, "image": "mine", "architecture": "amd64"},
        {"version": version, "image": "arm", "architecture": "arm64"},
    ]
    given["spec"]["providerConfig"]["machineImages"].append({"name": "b", "versions": []})
    after = changed(given, answered("gcp.mutator", given))
    first, second = after["status"]["cloudProfileSpec"]["providerConfig"]["machineImages"]
    assert [each["image"] for each in first["versions"]] == ["mine", "arm"]
    assert second["name"] == "b"


def test_machine_types_of_azure_are_added_to_those_of_the_parent() -> None:
    given = in_status("azure")
    inherited = given["status"]["cloudProfileSpec"]["providerConfig"]
    inherited["machineTypes"] = [{"name": "a", "acceleratedNetworking": True}]
    given["spec"]["providerConfig"]["machineTypes"] = [{"name": "a"}, {"name": "b"}]
    after = changed(given, answered("azure.mutator", given))
    types = after["status"]["cloudProfileSpec"]["providerConfig"]["machineTypes"]
    assert types == [{"name": "a", "acceleratedNetworking": True}, {"name": "b"}]


_UNREADY: dict[str, Callable[[Object], object]] = {
    "an-older-generation": lambda one: one["status"].update(observedGeneration=2),
    "no-config": lambda one: one["spec"].pop("providerConfig"),
    "no-status": lambda one: one.update(status={}),
    "being-deleted": lambda one: one["metadata"].update(DELETED),
}


@pytest.mark.parametrize("change", [pytest.param(act, id=name) for name, act in _UNREADY.items()])
def test_a_status_that_is_not_ready_stays(change: Callable[[Object], object]) -> None:
    given = in_status("aws")
    change(given)
    assert answered("aws.mutator", given) == Answer(True)


def test_a_config_in_the_status_that_cannot_be_read_denies() -> None:
    given = in_status("aws")
    given["status"]["cloudProfileSpec"]["providerConfig"]["unknown"] = 1
    answer = answered("aws.mutator", given)
    assert (answer.code, "status.cloudProfileSpec.providerConfig" in answer.message) == (403, True)


def test_the_seed_of_gcp_is_checked() -> None:
    config = {"apiVersion": "gcp.provider.extensions.gardener.cloud/v1alpha1", "kind": "BackupBucketConfig"}
    immutability = {"retentionType": "bucket", "retentionPeriod": "1h"}
    spec = {"backup": {"providerConfig": {**config, "immutability": immutability}}}
    seed = {
        "apiVersion": "core.gardener.cloud/v1beta1",
        "kind": "Seed",
        "metadata": {"name": "s"},
        "spec": spec,
    }
    assert "retentionPeriod" in answered("gcp.validator", seed).message


@cases(
    "webhook kind",
    ("shoot", "openstack.validator", "Shoot"),
    ("mutated-shoot", "alicloud.mutator", "Shoot"),
    ("binding", "aws.validator", "CredentialsBinding"),
    ("secret", "azure.secrets.validator", "Secret"),
)
def test_values_of_secrets_are_in_no_answer_and_no_record(webhook: str, kind: str) -> None:
    cloud = webhook.partition(".")[0]
    secret = cloudobjects.secret(cloud)
    values = [*secret["data"].values(), *(b64decode(one).decode() for one in secret["data"].values())]
    values = [one for one in values if one]
    objects = {
        "Shoot": shoot(cloud),
        "Secret": secret,
        "CredentialsBinding": cloudobjects.credentials_binding(cloud),
    }
    decision, _ = decided(webhook, objects[kind])
    assert decision.answer.allowed
    noted = journal.record(decision, "here")
    assert noted.request == ""
    written = noted.encoded().decode() + str(decision.answer)
    assert [value for value in values if value in written] == []
    result = journal.replayed([noted])
    assert (result.replayed, result.left_out) == (0, 1)


@each_cloud
def test_wrong_values_of_secrets_are_not_repeated(cloud: str) -> None:
    good = cloudobjects.secret(cloud)
    for name in good["data"]:
        answer = answered(
            f"{cloud}.secrets.validator", cloudobjects.secret(cloud, **{name: "\nS3cr3t V4lue\n"})
        )
        assert "S3cr3t" not in answer.message


def test_a_decision_without_secrets_is_recorded_as_a_whole() -> None:
    decision, _ = decided("aws.validator", shoot("aws"))
    noted = journal.record(decision, "here")
    result = journal.replayed([noted])
    assert (result.replayed, result.differences) == (1, [])


@cases(
    "name",
    ("empty", ""),
    ("path", "../secrets/x"),
    ("long", "x" * 300),
    ("upper-case", "A B"),
)
def test_a_name_that_no_object_can_have_is_no_bug(name: str) -> None:
    given = shoot("openstack")
    given["spec"]["credentialsBindingName"] = name
    answer = answered("openstack.validator", given)
    assert (answer.code, "there is no Secret" in answer.message) == (403, True)


@cases(
    "modules allowed",
    ("admission", "commands.roles.admitting", ("clouds.table",)),
    ("all-roles", "*", ("clouds.table", "clouds.frame")),
)
def test_no_cloud_is_loaded_before_it_is_needed(modules: str, allowed: tuple[str, ...]) -> None:
    script = f"""
import importlib, pkgutil, sys
import commands.roles
roles = [f"commands.roles.{{one.name}}" for one in pkgutil.iter_modules(commands.roles.__path__)]
for one in roles if "{modules}" == "*" else ["{modules}"]:
    importlib.import_module(one)
print([one for one in sys.modules if one.startswith("clouds.") and not one.startswith({allowed})])
"""
    shown = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert shown.stdout.strip() == "[]"
