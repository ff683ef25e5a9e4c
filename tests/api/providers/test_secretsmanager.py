"""Generated secrets of one identity, in a real API server."""

from __future__ import annotations

import asyncio
import ssl
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from tests.support.rules import rule
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Malformed
from windowbox.models.objects import Object
from windowbox.models.refs import NAMESPACES, SECRETS
from windowbox.secretsmanager import decisions
from windowbox.secretsmanager.configs import Authority, BasicAuth, Certificate, Usage
from windowbox.secretsmanager.decisions import Policy
from windowbox.secretsmanager.manager import Ensured, SecretsManager

IDENTITY = "provider-local-controlplane"
CA = Authority("ca-provider-local-controlplane", persist=True)
SERVER = Certificate(
    "provider-local-dummy-server",
    "provider-local-dummy-server",
    CA.name,
    Usage.SERVER,
    dns_names=("provider-local-dummy-server", "provider-local-dummy-server.shoot--a--b.svc"),
    publish_authority=True,
)
CLIENT = Certificate(
    "provider-local-dummy-client",
    "extensions.gardener.cloud:provider-local:dummy-client",
    CA.name,
    Usage.CLIENT,
    organizations=("extensions.gardener.cloud:provider-local:dummy",),
)
AUTH = BasicAuth("provider-local-dummy-auth", validity=timedelta(hours=1))
ALL = (AUTH, CLIENT, SERVER, CA)
BEFORE = Policy()
"""No rotation yet."""
NOW = datetime(2026, 9, 1, 10, 0, tzinfo=UTC)
STARTED = int(datetime(2026, 9, 2, tzinfo=UTC).timestamp())


class Site:
    """A namespace with generated secrets."""

    def __init__(self, api: Kube, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self.manager = SecretsManager(api, namespace, IDENTITY)

    async def run(self, policy: Policy = BEFORE, now: datetime = NOW) -> Ensured:
        ensured = await self.manager.ensure(ALL, policy, now)
        await self.manager.clean_up(ensured)
        return ensured

    async def of_webhooks(self, days: float) -> Ensured:
        """Renew what webhooks need, so many days after the first time."""
        configs = (Authority("ca", timedelta(days=30)), replace(SERVER, authority="ca"))
        made = await self.manager.ensure(configs, decisions.WEBHOOKS, NOW + timedelta(days=days))
        await self.manager.clean_up(made)
        return made

    async def secrets(self) -> dict[str, Object]:
        page = await self.api.page(SECRETS, namespace=self.namespace)
        return {one.name: one for one in map(Object, page.items)}

    async def data(self, config: str) -> Mapping[str, bytes]:
        found = await self.manager.read(config)
        assert found is not None
        return found[1]


@pytest.fixture
async def site(plane: ControlPlane) -> AsyncIterator[Site]:
    async with kube.from_file(plane.kubeconfig) as api:
        name = f"shoot--s--{uuid.uuid4().hex[:8]}"
        await api.create(NAMESPACES, "", {"metadata": {"name": name}})
        yield Site(api, name)


@rule("Z-1", "Z-2", "Z-7", "Z-8")
async def test_each_config_gets_one_immutable_labelled_secret(site: Site, tmp_path: Path) -> None:
    ensured = await site.run()
    found = await site.secrets()

    assert set(found) == set(ensured.names.values())
    assert set(ensured.names) == {one.name for one in ALL} | {CA.bundle}
    assert all(one.raw["immutable"] for one in found.values())
    types = {name: found[secret].raw["type"] for name, secret in ensured.names.items()}
    assert types[SERVER.name] == types[CLIENT.name] == "kubernetes.io/tls"
    assert types[CA.name] == types[AUTH.name] == types[CA.bundle] == "Opaque"
    authority = found[ensured.names[CA.name]].labels
    assert authority["managed-by"] == "secrets-manager"
    assert authority["manager-identity"] == IDENTITY
    assert authority["persist"] == "true"
    assert authority["last-rotation-initiation-time"] == ""
    assert authority["issued-at-time"] == str(int(NOW.timestamp()) - 60)
    assert found[ensured.names[CA.bundle]].labels["bundle-for"] == CA.name
    auth = found[ensured.names[AUTH.name]].labels
    assert int(auth["valid-until-time"]) - int(auth["issued-at-time"]) == 3600
    assert "checksum-of-signing-ca" in found[ensured.names[CLIENT.name]].labels
    await _works(site, ensured, tmp_path)


async def test_secrets_that_are_there_stay(site: Site) -> None:
    first = await site.run()
    versions = {name: one.resource_version for name, one in (await site.secrets()).items()}

    assert first.changed
    assert await site.run() == first.model_copy(update={"changed": False})
    assert {name: one.resource_version for name, one in (await site.secrets()).items()} == versions


@rule("Z-4", "B.19")
async def test_a_password_is_renewed_when_it_is_due(site: Site) -> None:
    first = await site.run()
    assert first.due == int(NOW.timestamp()) + 48 * 60

    early = await site.run(now=NOW + timedelta(minutes=47))
    late = await site.run(now=NOW + timedelta(minutes=48))

    assert early.names == first.names
    changed = {name for name in late.names if late.names[name] != first.names[name]}
    assert changed == {AUTH.name}
    assert set(await site.secrets()) == set(late.names.values())
    assert late.due == int(NOW.timestamp()) + 96 * 60


@rule("Z-5")
async def test_both_phases_of_a_rotation_are_followed(site: Site, tmp_path: Path) -> None:
    before = await site.run()

    preparing = await site.run(Policy(rotation=STARTED))
    assert preparing.names[CA.name] != before.names[CA.name]
    assert preparing.names[SERVER.name] == before.names[SERVER.name]
    assert preparing.names[CLIENT.name] != before.names[CLIENT.name]
    assert preparing.bundles[CA.name].count("BEGIN CERTIFICATE") == 2
    assert before.bundles[CA.name] in preparing.bundles[CA.name]
    assert before.names[CA.name] in await site.secrets()
    await _works(site, preparing, tmp_path)
    assert (await site.run(Policy(rotation=STARTED))).names == preparing.names

    completing = await site.run(Policy(rotation=STARTED, drop_old=True))
    assert completing.names[CA.name] == preparing.names[CA.name]
    assert completing.names[SERVER.name] != before.names[SERVER.name]
    assert completing.names[CLIENT.name] == preparing.names[CLIENT.name]
    assert completing.bundles[CA.name].count("BEGIN CERTIFICATE") == 1
    assert set(await site.secrets()) == set(completing.names.values())
    await _works(site, completing, tmp_path)


@rule("WF-60", "WF-61")
async def test_an_authority_of_webhooks_is_renewed_and_its_predecessor_kept_a_day(site: Site) -> None:
    first = await site.of_webhooks(0)
    assert (await site.of_webhooks(19.9)).names == first.names
    renewed = await site.of_webhooks(20)
    assert renewed.names["ca"] != first.names["ca"]
    assert renewed.names[SERVER.name] != first.names[SERVER.name]
    assert renewed.bundles["ca"].count("BEGIN CERTIFICATE") == 2
    assert renewed.due == int((NOW + timedelta(days=21, minutes=-1)).timestamp())
    dropped = await site.of_webhooks(21)
    assert dropped.names["ca"] == renewed.names["ca"]
    assert dropped.names[SERVER.name] == renewed.names[SERVER.name]
    assert dropped.bundles["ca"].count("BEGIN CERTIFICATE") == 1
    assert set(await site.secrets()) == set(dropped.names.values())


@pytest.mark.parametrize("ahead", [pytest.param(40, marks=pytest.mark.long), -40])
async def test_a_pass_with_a_wrong_clock_costs_no_authority(site: Site, ahead: int) -> None:
    """Whoever trusts the first authority still trusts the certificate that the next right pass shows."""
    first = await site.of_webhooks(0)
    wrong = await site.of_webhooks(ahead)
    assert wrong.names["ca"] != first.names["ca"]
    assert first.bundles["ca"] in wrong.bundles["ca"]
    right = await site.of_webhooks(0.01)
    assert first.bundles["ca"] in right.bundles["ca"]
    server = x509.load_pem_x509_certificate((await site.data(SERVER.name))["tls.crt"])
    assert server.not_valid_before_utc <= NOW + timedelta(days=0.01) < server.not_valid_after_utc
    assert (await site.of_webhooks(0.02)).names == right.names


@rule("Z-3", "WF-66")
async def test_secrets_of_another_program_are_adopted(site: Site) -> None:
    """Its hashes and names differ, but what they hold is what is asked for."""
    made = await site.run()
    theirs: dict[str, str] = {}
    for config, name in made.names.items():
        found = await site.api.get(SECRETS, site.namespace, name)
        await site.api.remove(SECRETS, site.namespace, name)
        theirs[config] = f"{config}-0badcafe"
        labels = {**found.labels, "checksum-of-config": "17", "renew-after-validity-percentage": "80"}
        body = {**found.raw, "metadata": {"name": theirs[config], "labels": labels}}
        await site.api.create(SECRETS, site.namespace, body)

    adopted = await site.run()

    assert adopted.names == theirs
    found = await site.api.get(SECRETS, site.namespace, theirs[SERVER.name])
    assert "renew-after-validity-percentage" not in found.labels
    assert (await site.run()).names == theirs


@rule("Z-6")
async def test_data_that_is_supplied_is_used(site: Site) -> None:
    made = await site.run()
    given = await site.data(CA.name)
    source = (await site.api.get(SECRETS, site.namespace, made.names[CA.name])).raw
    await site.manager.remove_all()
    labels = {"secrets-manager-use-data-for-name": CA.name}
    for name in ("one", "other"):
        body = {**source, "metadata": {"name": name, "labels": labels}}
        await site.api.create(SECRETS, site.namespace, body)

    with pytest.raises(Malformed, match="Secrets one, other are all labelled"):
        await site.run()
    await site.api.remove(SECRETS, site.namespace, "other")
    await site.run()

    assert await site.data(CA.name) == given


@pytest.mark.long  # the test above supplies data, others renew
@rule("Z-6")
async def test_data_that_is_due_for_renewal_is_not_taken_as_new(site: Site) -> None:
    """Each run would find it due, and take it again."""
    made = await site.run()
    source = (await site.api.get(SECRETS, site.namespace, made.names[SERVER.name])).raw
    labels = {"secrets-manager-use-data-for-name": SERVER.name}
    body = {**source, "metadata": {"name": "given", "labels": labels}}
    await site.api.create(SECRETS, site.namespace, body)
    before = set(await site.secrets())

    with pytest.raises(Malformed, match=r"Secret given, .* valid until 2036-.* put a newer one in"):
        await site.run(now=NOW + timedelta(days=3645))

    assert {name for name in await site.secrets() if name.startswith(SERVER.name)} <= before


async def test_runs_cut_short_at_any_point_lose_no_authority(site: Site) -> None:
    before = await site.run()
    policy = Policy(rotation=STARTED)
    for cut in range(8):
        run = asyncio.create_task(site.run(policy))
        await asyncio.wait([run], timeout=cut / 20)
        run.cancel()
        await asyncio.wait([run])
        assert {before.names[CA.name], before.names[SERVER.name]} <= set(await site.secrets())
    after = await site.run(policy)

    assert after.bundles[CA.name].count("BEGIN CERTIFICATE") == 2
    assert before.bundles[CA.name] in after.bundles[CA.name]


async def _works(site: Site, ensured: Ensured, folder: Path) -> None:
    """A server and a client with these certificates trust each other."""
    bundle = ensured.bundles[CA.name]
    for config in (SERVER, CLIENT):
        data = await site.data(config.name)
        (folder / f"{config.name}.pem").write_bytes(data["tls.key"] + data["tls.crt"])
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=bundle)
    serving.verify_mode = ssl.CERT_REQUIRED
    serving.load_cert_chain(folder / f"{SERVER.name}.pem")
    asking = ssl.create_default_context(cadata=bundle)
    asking.load_cert_chain(folder / f"{CLIENT.name}.pem")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = serving.wrap_bio(incoming, outgoing, server_side=True)
    client = asking.wrap_bio(outgoing, incoming, server_hostname=SERVER.dns_names[0])
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    presented = server.getpeercert(binary_form=True)
    assert presented is not None
    assert CLIENT.organizations[0] in x509.load_der_x509_certificate(presented).subject.rfc4514_string()
