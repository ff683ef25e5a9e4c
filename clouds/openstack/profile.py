"""CloudProfiles of type openstack."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address

from clouds.frame import machineimages
from clouds.frame.cloud import ProfileReview
from clouds.frame.decoding import decode
from clouds.frame.gardenobjects import ProfileSpec
from clouds.frame.problems import Problem, duplicate, forbidden, invalid, required
from clouds.openstack.api import CloudProfileConfig, FloatingPool, ImageVersion, LoadBalancerProvider
from clouds.openstack.constraints import classes

_CONFIG = "spec.providerConfig"
_CONSTRAINTS = f"{_CONFIG}.constraints"


def problems(profile: ProfileSpec) -> Iterator[Problem]:
    if profile.provider_config is None:
        yield required(_CONFIG, "add a CloudProfileConfig with Keystone, images and constraints")
        return
    config = decode(CloudProfileConfig, profile.provider_config, _CONFIG)
    yield from _floating_pools(config.constraints.floating_pools)
    yield from _providers(config.constraints.load_balancer_providers)
    yield from machineimages.incomplete(config.machine_images, "id", regions_required=False)  # OST-P1
    yield from _keystone(config)
    for i, server in enumerate(config.dns_servers):  # OST-P3
        if not _is_address(server):
            yield invalid(f"{_CONFIG}.dnsServers[{i}]", server, "is no IP address: correct it")
    if config.dhcp_domain == "":
        yield required(f"{_CONFIG}.dhcpDomain", "is empty: give it, or remove the field")
    for i, policy in enumerate(config.server_group_policies):  # OST-P4
        if not policy:
            yield required(f"{_CONFIG}.serverGroupPolicies[{i}]", "is empty: remove it")


def namespaced_problems(review: ProfileReview) -> Iterator[Problem]:
    config = CloudProfileConfig()
    if review.profile.provider_config is not None:
        config = decode(CloudProfileConfig, review.profile.provider_config, _CONFIG)
    head = {name: getattr(config, name) for name in ("api_version", "kind", "machine_images")}
    if config != CloudProfileConfig.model_construct(**head):
        yield forbidden(_CONFIG, "may set machineImages only: remove the other fields")
    for i, image in enumerate(config.machine_images):
        path = f"{machineimages.IMAGES}[{i}]"
        yield from machineimages.incomplete_image(image, "id", path, regions_required=False)
    yield from machineimages.problems(
        config.machine_images, review.profile.machine_images, review.parent.machine_images, _architectures
    )


def _floating_pools(pools: Sequence[FloatingPool]) -> Iterator[Problem]:
    """OST-P5."""
    path, used = f"{_CONSTRAINTS}.floatingPools", set[tuple[str, str, str]]()
    if not pools:
        yield required(path, "add one floating pool at least")
    for i, pool in enumerate(pools):
        where = f"{path}[{i}]"
        if not pool.name:
            yield required(f"{where}.name", "give a name")
        for name, value in (("region", pool.region), ("domain", pool.domain)):
            if value == "":
                yield required(f"{where}.{name}", "is empty: give it, or remove the field")
        if pool.region is not None or pool.domain is not None:
            key = (
                pool.name,
                "*" if pool.domain is None else pool.domain,
                "*" if pool.region is None else pool.region,
            )
            if key in used:
                yield duplicate(f"{where}.name", pool.name)
            used.add(key)
        yield from classes.problems(pool.load_balancer_classes, f"{where}.loadBalancerClasses")


def _providers(providers: Sequence[LoadBalancerProvider]) -> Iterator[Problem]:
    """OST-P6."""
    path, used = f"{_CONSTRAINTS}.loadBalancerProviders", set[tuple[str, str]]()
    if not providers:
        yield required(path, "add one load balancer provider at least")
    for i, one in enumerate(providers):
        if not one.name:
            yield required(f"{path}[{i}].name", "give a name")
        if one.region is None:
            continue
        if not one.region:
            yield required(f"{path}[{i}].region", "is empty: give it, or remove the field")
        if (one.name, one.region) in used:
            yield duplicate(f"{path}[{i}]", one.name)
        used.add((one.name, one.region))


def _keystone(config: CloudProfileConfig) -> Iterator[Problem]:
    """OST-P2."""
    if not config.keystone_url and not config.keystone_urls:
        yield required(f"{_CONFIG}.keyStoneURL", "give the URL of Keystone, or keystoneURLs")
    yield from _certificate(config.keystone_ca_cert, f"{_CONFIG}.caCert")
    used: set[str] = set()
    for i, one in enumerate(config.keystone_urls):
        path = f"{_CONFIG}.keyStoneURLs[{i}]"
        if not one.region:
            yield required(f"{path}.region", "name the region")
        if not one.url:
            yield required(f"{path}.url", "give the URL of Keystone in the region")
        if one.region in used:
            yield duplicate(f"{path}.region", one.region)
        used.add(one.region)
        yield from _certificate(one.ca_cert, f"{path}.caCert")


def _certificate(text: str | None, path: str) -> Iterator[Problem]:
    if not text:
        return
    from cryptography import x509  # Few profiles have a certificate.

    try:
        x509.load_pem_x509_certificate(text.encode(errors="replace"))
    except ValueError:
        yield invalid(path, text[:40], "is no certificate in PEM form: copy it again")


def _is_address(text: str) -> bool:
    try:
        return "%" not in text and bool(ip_address(text))
    except ValueError:
        return False


def _architectures(version: ImageVersion) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for region in version.regions:
        found[region.name].append(region.architecture)
    return found
