"""Webhooks for Services of Shoots in clouds; `tests/unit/clouds/test_balancers.py` has the changes."""

from __future__ import annotations

import pytest

from tests.support.admitted import admitted, answered, resource
from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.rights import webhookconfigurations as configurations
from windowbox.settings.webhooksettings import WebhookSettings


@cases(
    "cloud families added",
    ("AWS-X6-dual-stack", "aws", ["IPv4", "IPv6"], ["aws.ingress", "aws.services"]),
    ("AWS-X6-single-stack", "aws", ["IPv4"], ["aws.ingress"]),
    ("ALI-X1", "alicloud", ["IPv4"], ["alicloud.services"]),
    ("gcp", "gcp", ["IPv4", "IPv6"], []),
    ("local", "local", ["IPv4", "IPv6"], []),
)
def test_shoots_have_webhooks_of_their_cloud(cloud: str, families: list[str], added: list[str]) -> None:
    (made,) = configurations.for_shoot(WebhookSettings(), b"", cloud, families)
    names = [one["name"].removesuffix(".local.extensions.gardener.cloud") for one in made["webhooks"]]
    # Nodes of clouds have the size of their machine type, and a provider ID of the cloud.
    assert names == [*added, "node" if cloud == "local" else "instance", "shoot"]


@rule("AWS-X6")
@pytest.mark.parametrize("data", [None, {}, {"use-proxy-protocol": "false", "a": "b"}])
def test_an_ingress_controller_of_aws_expects_proxy_headers(data: dict[str, str] | None) -> None:
    found = admitted("aws.ingress", resource("v1 ConfigMap", "addons-nginx-ingress-controller", data=data))
    assert found["data"] == {**(data or {}), "use-proxy-protocol": "true"}


@rule("ALI-X1")
def test_a_service_of_a_wrong_form_is_no_service() -> None:
    answer = answered("alicloud.services", resource("v1 Service", "web", spec=["x"]))
    assert answer.code == 400
