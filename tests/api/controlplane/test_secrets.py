"""The generated secrets of a ControlPlane, through rotations and renewals; where they must not be found."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from bus import streams, subjects
from bus.transport.connection import connected
from tests.api.controlplane import controlplanes
from tests.api.controlplane.controlplanes import KUBERNETES, PROFILE
from tests.support import livefiles
from tests.support.kindworld import Client, KindWorld
from tests.support.markers import Markers
from tests.support.rules import rule
from windowbox.models.objects import Object
from windowbox.models.refs import CONTROL_PLANES, RUNTIME, SECRETS, ObjectRef
from windowbox.settings.bussettings import Access
from windowbox.settings.kindsettings import ControlPlaneSettings, KindSettings

KINDS = KindSettings(controlplane=ControlPlaneSettings(ccm="deployment"))
pytestmark = [pytest.mark.serves("controlplane", kinds=KINDS), pytest.mark.asyncio(loop_scope="module")]

AUTHORITY = "ca-provider-local-controlplane"
SERVER, CLIENT, AUTH = (f"provider-local-dummy-{one}" for one in ("server", "client", "auth"))
CCM = "cloud-controller-manager-server"


@rule("Z-1", "Z-2", "Z-7", "Z-8")
async def test_secrets_have_the_forms_of_the_contract(world: KindWorld) -> None:
    shoot = await controlplanes.ready(world)
    found = await _generated(shoot)
    assert found.keys() == {AUTHORITY, f"{AUTHORITY}-bundle", SERVER, CLIENT, AUTH, CCM}
    assert {name: sorted(one.raw["data"]) for name, (one,) in found.items()} == {
        AUTHORITY: ["ca.crt", "ca.key"],
        f"{AUTHORITY}-bundle": ["bundle.crt"],
        SERVER: ["ca.crt", "tls.crt", "tls.key"],
        CLIENT: ["tls.crt", "tls.key"],
        AUTH: ["auth", "password", "username"],
        CCM: ["tls.crt", "tls.key"],
    }
    assert all(one.raw["immutable"] for (one,) in found.values())
    (authority,), (server,), (ccm,) = found[AUTHORITY], found[SERVER], found[CCM]
    assert authority.labels["persist"] == "true"
    assert server.raw["type"] == "kubernetes.io/tls"
    certificate = _certificate(ccm)
    certificate.verify_directly_issued_by(_authority(authority))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    service = f"cloud-controller-manager.{shoot.namespace}"
    assert names.get_values_for_type(x509.DNSName) == [
        "cloud-controller-manager",
        service,
        f"{service}.svc",
        f"{service}.svc.cluster.local",
    ]


@rule("B.19", "Z-4")
async def test_nothing_is_renewed_before_its_time(world: KindWorld) -> None:
    shoot = await controlplanes.ready(world)
    before = _uids(await controlplanes.secrets(shoot))
    await controlplanes.asked(shoot)
    assert _uids(await controlplanes.secrets(shoot)) == before
    key = subjects.key(ObjectRef(RUNTIME, CONTROL_PLANES.id, shoot.namespace, "local"))
    async with connected(Access(world.nats.url, name="test")) as bus:
        later = await bus.last(streams.LATER, subjects.later("controlplane", key))
    assert later
    due = datetime.fromisoformat(later.headers["Nats-Schedule"].removeprefix("@at "))
    assert timedelta(minutes=40) < due - datetime.now(UTC) < timedelta(minutes=49)


@pytest.mark.long  # providers/test_secretsmanager.py follows both phases
@rule("Z-5")
async def test_authorities_rotate_in_lock_step_with_the_shoot(world: KindWorld) -> None:
    shoot = await controlplanes.ready(world)
    (first,) = (await _generated(shoot))[AUTHORITY]
    for phase in ("PreparingWithoutWorkersRollout", "WaitingForWorkersRollout", "Prepared"):
        await _rotate(shoot, phase)
        found = await _generated(shoot)
        assert len(found[AUTHORITY]) == 2
        (second,) = (one for one in found[AUTHORITY] if one.name != first.name)
        _signed(found[SERVER], by=first)
        _signed(found[CCM], by=first)
        _signed(found[CLIENT], by=second)
        assert _trusted(found) == {_authority(first), _authority(second)}
    for phase in ("Completing", "Completed"):
        await _rotate(shoot, phase)
        found = await _generated(shoot)
        assert [one.name for one in found[AUTHORITY]] == [second.name]
        _signed(found[SERVER], by=second)
        _signed(found[CCM], by=second)
        _signed(found[CLIENT], by=second)
        assert _trusted(found) == {_authority(second)}


@rule("Z-3")
async def test_secrets_of_a_former_installation_are_adopted(world: KindWorld) -> None:
    shoot = await controlplanes.ready(world)
    ours = await _generated(shoot)
    await shoot.delete(CONTROL_PLANES, "local")
    await shoot.until_gone(CONTROL_PLANES, "local")
    for (one,) in ours.values():
        labels = {**one.labels, "checksum-of-config": "12345678901234567890"}
        renamed = {"name": one.name[:-8] + "0f0f0f0f", "labels": labels}
        kept = {key: one.raw[key] for key in ("data", "type", "immutable")}
        await shoot.kube.create(SECRETS, shoot.namespace, {"metadata": renamed, **kept})
    before = _uids(await controlplanes.secrets(shoot))
    await controlplanes.controlplane(shoot)
    await controlplanes.until_ready(shoot)
    await world.quiet()
    after = await controlplanes.secrets(shoot)
    assert before.items() <= _uids(after).items()
    assert len(await _generated(shoot)) == len(ours)
    assert all(len(found) == 1 for found in (await _generated(shoot)).values())


async def test_neither_recordings_nor_the_bus_hold_private_keys(world: KindWorld) -> None:
    began, shoot = datetime.now(UTC), await controlplanes.ready(world)
    markers = _private(await _generated(shoot))
    await _rotate(shoot, "Preparing")
    markers.texts |= _private(await _generated(shoot)).texts
    assert len(markers.texts) >= 7
    await shoot.delete(CONTROL_PLANES, "local")
    await shoot.until_gone(CONTROL_PLANES, "local")
    await world.quiet()
    assert await controlplanes.secrets(shoot) == {}
    recording = await world.recorded(began, "controlplane")
    recorded = "".join(run.model_dump_json() for run in recording.runs).encode()
    assert b"provider-local-dummy-auth" in recorded  # names are recorded
    assert markers.in_(recorded) == set()
    kept = livefiles.contents(world.nats.store)
    assert shoot.namespace.encode() in kept
    assert markers.in_(kept) == set()


async def _rotate(shoot: Client, phase: str) -> None:
    """The Shoot comes into a phase of a rotation, and gardenlet asks for a run."""
    rotation = {"lastInitiationTime": "2026-09-02T00:00:00Z", "phase": phase}
    status = {"credentials": {"rotation": {"certificateAuthorities": rotation}}}
    await shoot.cluster(spec=KUBERNETES, status=status, cloudProfile=PROFILE)
    await controlplanes.asked(shoot)


async def _generated(shoot: Client) -> dict[str, list[Object]]:
    """The generated secrets of a namespace, by config."""
    found: dict[str, list[Object]] = {}
    for one in (await controlplanes.secrets(shoot)).values():
        if one.labels.get("manager-identity") == "provider-local-controlplane":
            found.setdefault(str(one.labels["name"]), []).append(one)
    return found


def _uids(found: dict[str, Object]) -> dict[str, str]:
    return {name: one.uid for name, one in found.items()}


def _private(found: dict[str, list[Object]]) -> Markers:
    """A piece of each private key and password."""
    markers = Markers()
    for one in (one for all_of in found.values() for one in all_of):
        for key in {"ca.key", "tls.key", "password"} & one.raw["data"].keys():
            text = _data(one, key).decode()
            markers.texts[f"{one.name}/{key}"] = text if key == "password" else text.splitlines()[10][:60]
    return markers


def _data(secret: Object, key: str) -> bytes:
    return base64.b64decode(secret.raw["data"][key])


def _certificate(secret: Object) -> x509.Certificate:
    return x509.load_pem_x509_certificate(_data(secret, "tls.crt"))


def _authority(secret: Object) -> x509.Certificate:
    return x509.load_pem_x509_certificate(_data(secret, "ca.crt"))


def _trusted(found: dict[str, list[Object]]) -> set[x509.Certificate]:
    (bundle,) = found[f"{AUTHORITY}-bundle"]
    return set(x509.load_pem_x509_certificates(_data(bundle, "bundle.crt")))


def _signed(found: list[Object], *, by: Object) -> None:
    (one,) = found
    _certificate(one).verify_directly_issued_by(_authority(by))
