"""The Secrets `cloudprovider` of Shoots of clouds."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

import pytest

from tests.support.admitted import Json, admitted, answered, refusal, resource
from tests.support.cloudcredentials import CREDENTIALS
from tests.support.rules import rule
from windowbox.rights import webhookconfigurations as configurations
from windowbox.settings.webhooksettings import WebhookSettings

PROFILE = {
    "apiVersion": "openstack.provider.extensions.gardener.cloud/v1alpha1",
    "kind": "CloudProfileConfig",
    "keystoneURL": "https://general",
    "keystoneCACert": "general authority",
    "keystoneURLs": [
        {"region": "eu-1", "url": "https://eu-1", "caCert": "authority of eu-1"},
        {"region": "eu-2", "url": "https://eu-2"},
    ],
}


def secret(cloud: str, name: str = "cloudprovider", **data: bytes) -> Json:
    values = {key: b64encode(value).decode() for key, value in {**CREDENTIALS[cloud], **data}.items()}
    return resource("v1 Secret", name, data=values)


def values(found: Json) -> dict[str, str]:
    return {key: b64decode(value).decode() for key, value in found["data"].items()}


def cluster(region: str, **config: Any) -> Json:
    spec = {
        "shoot": {"spec": {"region": region}},
        "cloudProfile": {"spec": {"providerConfig": PROFILE | config}},
    }
    return {"metadata": {"name": "shoot--local--local"}, "spec": spec}


@rule("AWS-S4")
def test_programs_of_aws_find_a_file_of_credentials() -> None:
    found = admitted("aws.cloudprovider", secret("aws", credentialsFile=b"former"))
    own = {key: value.decode() for key, value in CREDENTIALS["aws"].items()}
    lines = [
        "[default]",
        f"aws_access_key_id={own['accessKeyID']}",
        f"aws_secret_access_key={own['secretAccessKey']}",
    ]
    assert values(found) == {**own, "credentialsFile": "\n".join(lines)}
    assert admitted("aws.cloudprovider", found) == found
    other = secret("aws", name="other")
    assert admitted("aws.cloudprovider", other) == other


def test_a_secret_of_aws_without_a_key_is_denied() -> None:
    given = secret("aws")
    del given["data"]["secretAccessKey"]
    assert "'secretAccessKey' field is missing: add it" in refusal("aws.cloudprovider", given)


@rule("OST-S5")
@pytest.mark.parametrize(
    ("region", "url", "authority"),
    [
        pytest.param("eu-1", "https://eu-1", "authority of eu-1", id="regional"),
        pytest.param("eu-2", "https://eu-2", "general authority", id="authority-of-all"),
        pytest.param("us-1", "https://general", "general authority", id="general"),
    ],
)
def test_secrets_of_openstack_get_keystone_from_the_profile(region: str, url: str, authority: str) -> None:
    given = secret("openstack", authURL=b"https://wrong", insecure=b"true")
    found = values(admitted("openstack.cloudprovider", given, found=cluster(region)))
    assert (found["authURL"], found["caCert"], "insecure" in found) == (url, authority, False)
    forced = cluster(region, keystoneForceInsecure=True)
    assert values(admitted("openstack.cloudprovider", given, found=forced))["insecure"] == "true"


@rule("OST-S5")
def test_a_secret_of_openstack_needs_a_keystone() -> None:
    given, nowhere = secret("openstack"), cluster("us-1", keystoneURL="")
    assert "no keystoneURL for region 'us-1'" in refusal("openstack.cloudprovider", given, found=nowhere)
    assert "failed reading Cluster: not found" in refusal("openstack.cloudprovider", given)


def test_a_secret_that_is_not_base64_is_refused() -> None:
    given = secret("aws")
    given["data"]["accessKeyID"] = "%"
    answer = answered("aws.cloudprovider", given)
    assert not answer.allowed
    assert "not base64" in answer.message


def test_secrets_of_shoots_are_reviewed_where_their_cloud_is_served() -> None:
    def names(*clouds: str) -> set[str]:
        made = configurations.for_seed(WebhookSettings(), b"", clouds=clouds)
        return {
            entry["name"].removesuffix(".local.extensions.gardener.cloud")
            for one in made
            for entry in one["webhooks"]
        }

    assert names("aws", "gcp") - names() == {"aws.cloudprovider"}
    assert names("openstack") - names() == {"openstack.cloudprovider"}
