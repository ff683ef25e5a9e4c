"""Random objects of a garden, with the fields that its admission reads."""

from __future__ import annotations

import contextlib
import copy
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from tests.support.reviews import admission_review
from windowbox.models.objects import mapping

Drawn = dict[str, Any]
Place = tuple[Any, ...]

MUTATE, VALIDATE, SECRETS = "/webhooks/mutate", "/webhooks/validate", "/webhooks/validate/secrets"
ABSENT = ...
"""A field that an object does not have."""
_HEAD = {"apiVersion": "local.provider.extensions.gardener.cloud/v1alpha1", "kind": "CloudProfileConfig"}
_DELETED = "2026-01-01T00:00:00Z"
_STARTS = (
    "10.0.0.0", "10.0.7.9", "10.0.255.255", "10.1.0.0", "172.18.0.0", "172.18.0.200", "172.18.1.0",
    "fd00:10:1:100::", "FD00:10:1:1ff::1", "fd00:10:1:200::", "fd00:10::", "fd00:10:0:0:1::", "fd00:11::",
)  # fmt: skip
_LENGTHS = ("/16", "/24", "/15", "/32", "/56", "/64", "/128")
_ODD_STARTS = (
    "::ffff:10.0.0.0", "::ffff:a00:0", "::10.0.0.0", "fd00:10:1:100::10.0.0.1", "fd00:10:1:100:0:0:0:0", "::",
    "010.0.0.0", "10.0.0", "10.0.0.0.0", "10.0.0.256", "0xa.0.0.0", "167772160", "fe80::1%eth0", "fd00:::",
    "", "fd00:10:1:100:0:0:0::", "fd00:10:1:0100::", "fd00:10:1:00100::", "[fd00:10:1:100::]", "10.0.0.٠",
    " 10.0.0.0", "192.168.0.0",
)  # fmt: skip
_ODD_LENGTHS = (
    "/016", "/00", "/064", "/+16", "/-1", "/0", "/33", "/129", "", "/", "/ 16", "/16 ", "/255.255.0.0",
    "/0.0.255.255", "/16/16", "/1_6", "/٢", "/16\n", "/0x10", "/9999",
)  # fmt: skip


class Change(NamedTuple):
    """The change of an object after it was drawn."""

    how: Literal["nothing", "type", "unknown", "version"]
    place: Place = ()
    value: Any = None
    """The new value."""


@dataclass(frozen=True)
class Case:
    """A review for the admission, and the parent that it reads."""

    path: str
    review: Drawn
    parent: str
    change: Change

    def without(self) -> Drawn:
        """The review without the changed field."""
        review, place = copy.deepcopy(self.review), self.change.place
        for object in ("object", "oldObject"):
            with contextlib.suppress(KeyError, IndexError, TypeError):
                parent = review["request"][object]
                for step in place[:-1]:
                    parent = parent[step]
                if parent[place[-1]] == self.change.value:
                    del parent[place[-1]]
        return review


class Lot:
    """Draws objects; the same seed draws the same ones."""

    def __init__(self, seed: str) -> None:
        self.chance = random.Random(seed)
        self.oddness = 0.0
        """The probability of each oddity. Many at once would hide each other."""
        self.names: tuple[str, ...] = ("a", "b", "c")
        """Of machine images."""

    def one(self, *values: Any) -> Any:
        return copy.deepcopy(self.chance.choice(values))

    def some(self, most: int, draw: Callable[[], Any]) -> list[Any]:
        return [draw() for _ in range(self.chance.randint(0, most))]

    def rarely(self, value: Any, otherwise: Any) -> Any:
        return value if self.chance.random() < self.oddness else otherwise

    def fields(self, **values: Any) -> Drawn:
        """An object without the fields that are absent."""
        return {name: value for name, value in values.items() if value is not ...}

    def shoot(self) -> Drawn:
        pool = self.fields(name="one", controlPlane=self.one(ABSENT, ABSENT, None, {}))
        provider = self.fields(
            type="local", workers=self.one([pool], [pool], [{"name": "two"}, pool], [], None, ABSENT)
        )
        networking = self.fields(
            type="calico", nodes=self.one(self._range(), self._range(), self._range(), None, ABSENT)
        )
        spec = self.fields(
            region="local",
            networking=self.rarely(self.one(None, {}, ABSENT), networking),
            provider=provider,
            secretBindingName=self.one(ABSENT, ABSENT, "", "x"),
            credentialsBindingName=self.one(ABSENT, ABSENT, None, "", "x"),
        )
        annotations = self.one(
            ABSENT, None, {}, {"a": "b"}, {"extensions.gardener.cloud/processed-by": self.one("", "me")}
        )
        return self._object("core.gardener.cloud/v1beta1", "Shoot", spec, annotations=annotations)

    def cloud_profile(self) -> Drawn:
        capabilities = self._definitions()
        config = self._config(bool(capabilities))
        spec = self.fields(
            type="local",
            machineCapabilities=capabilities,
            machineImages=self.one(self._mapped(config), self._mapped(config), self._profile_images()),
            providerConfig=self.rarely(self.one(None, ABSENT, {}), config),
        )
        return self._object("core.gardener.cloud/v1beta1", "CloudProfile", spec)

    def namespaced_profile(self, *parents: str) -> Drawn:
        capabilities, own = self._definitions(), self._config(self.one(True, False))
        reference = self.fields(
            kind=self.rarely(self.one("NamespacedCloudProfile", "", None, ABSENT), "CloudProfile"),
            name=self.rarely("away", self.one(*parents)),
        )
        spec = self.fields(
            parent=self.rarely(self.one({}, None, ABSENT), reference),
            machineImages=self.one(self._mapped(own), self._mapped(own), self._profile_images()),
            providerConfig=self.rarely(self.one(None, ABSENT), own),
        )
        in_status = self.fields(
            type="local",
            machineCapabilities=capabilities,
            providerConfig=self.rarely(self.one(None, ABSENT), self._config(bool(capabilities))),
        )
        made = self._object("core.gardener.cloud/v1beta1", "NamespacedCloudProfile", spec, generation=2)
        made["status"] = self.fields(
            observedGeneration=self.rarely(self.one(1, ABSENT), 2), cloudProfileSpec=in_status
        )
        return made

    def workload_identity(self) -> Drawn:
        system = self.fields(type="local", providerConfig=self.one(ABSENT, None, {}, {"a": "b"}))
        spec = self.fields(audiences=["a"], targetSystem=self.rarely(self.one(ABSENT, None), system))
        return self._object("security.gardener.cloud/v1alpha1", "WorkloadIdentity", spec)

    def secret(self) -> Drawn:
        value = self.one("eA==", "eA==", "eHk=", "eA", "e A==", "eA==\n", "%", "", None, ABSENT)
        data = self.fields(kubeconfig=value, other=self.one(ABSENT, "eA=="))
        metadata = {"name": "local", "namespace": "garden-local"}
        head = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"}
        return {**head, **self.fields(data=self.rarely(self.one(ABSENT, None, {}), data))}

    def _object(self, api_version: str, kind: str, spec: Drawn, **metadata: Any) -> Drawn:
        head = self.fields(
            name="local",
            namespace=ABSENT if kind == "CloudProfile" else "garden-local",
            deletionTimestamp=self.rarely(_DELETED, ABSENT),
            **metadata,
        )
        return {"apiVersion": api_version, "kind": kind, "metadata": head, "spec": spec}

    def _range(self) -> str:
        starts, lengths = (*_STARTS, *_ODD_STARTS), (*_LENGTHS, *_ODD_LENGTHS)
        usual = f"{self.one(*_STARTS)}{self.one(*_LENGTHS)}"
        odd_start, odd = self.one(*starts) + self.one(*_LENGTHS), self.one(*starts) + self.one(*lengths)
        return str(self.one(usual, odd_start, odd))

    def _definitions(self) -> Any:
        architectures = {"name": "architecture", "values": self.one(["amd64"], ["amd64", "arm64"])}
        boot = {"name": "boot", "values": self.one(["secure", "plain"], ["plain"], [])}
        return self.one(
            ABSENT, None, [], [architectures], [boot], [architectures, boot], [architectures, boot, boot]
        )

    def _profile_images(self) -> Any:
        def version() -> Drawn:
            return self.fields(
                version=self.rarely(self.one("", ABSENT), self.one("1", "2", "3")),
                architectures=self.one(ABSENT, ABSENT, ["arm64"]),
                capabilityFlavors=self.one(ABSENT, ABSENT, None, self.some(2, self._capabilities)),
            )

        def image() -> Drawn:
            versions = self.rarely(self.one(None, ABSENT), self.some(2, version))
            return self.fields(
                name=self.rarely(self.one("", ABSENT), self.one(*self.names)), versions=versions
            )

        return self.rarely(self.one(None, ABSENT), self.some(3, image))

    def _mapped(self, config: Drawn) -> list[Drawn]:
        """Images that the config maps, or nearly."""
        return [
            self.fields(
                name=image.get("name", ABSENT),
                versions=[
                    self.fields(
                        version=version.get("version", ABSENT),
                        capabilityFlavors=[
                            one.get("capabilities") or {} for one in version.get("capabilityFlavors") or []
                        ],
                    )
                    for version in image.get("versions") or []
                    if self.chance.random() < 0.95
                ],
            )
            for image in config.get("machineImages") or []
        ]

    def _config(self, capable: bool) -> Any:
        def flavor() -> Drawn:
            return self.fields(
                image=self.rarely(self.one("", None, ABSENT), "f"),
                capabilities=self.one(
                    ABSENT, None, self._capabilities(), self._capabilities(), self._capabilities()
                ),
            )

        def version() -> Drawn:
            flavored = self.rarely(not capable, capable)
            return self.fields(
                version=self.rarely(self.one("", None, ABSENT), self.one("1", "2", "3")),
                image=self.rarely(self.one("", None), ABSENT if flavored else self.one("x", "y")),
                capabilityFlavors=self.some(3, flavor)
                if flavored
                else self.rarely(self.one(None, []), ABSENT),
            )

        def image() -> Drawn:
            versions = self.rarely(self.one(None, ABSENT, []), [version(), *self.some(2, version)])
            return self.fields(
                name=self.rarely(self.one("", None, ABSENT), self.one("a", "b")), versions=versions
            )

        images = self.rarely(self.one(None, ABSENT, []), [image(), *self.some(2, image)])
        balancer = self.one(ABSENT, ABSENT, None, {}, {"image": "lb"}, {"image": ""}, {"image": None})
        return {**_HEAD, **self.fields(machineImages=images, loadBalancer=balancer)}

    def _capabilities(self) -> Drawn:
        odd = self.one(["arm64", "amd64"], ["odd"], [], None, ABSENT)
        return self.fields(
            architecture=self.rarely(odd, self.one(["amd64"], ["arm64"])),
            boot=self.rarely(self.one(["odd"], [], None), self.one(ABSENT, ["plain"], ["plain", "secure"])),
            disk=self.rarely(["big"], ABSENT),
        )


def parents(seed: str) -> dict[str, Drawn]:
    """CloudProfiles that NamespacedCloudProfiles refer to, by name."""
    lot = Lot(seed)
    lot.names = ("a", "d")
    lot.oddness = 0.03
    found = {f"parent-{number}": lot.cloud_profile() for number in range(10)}
    for name, one in found.items():
        one["metadata"] = {"name": name}
    return found


KINDS = {
    "Shoot": (VALIDATE, "shoots", ""),
    "Shoot to be marked": (MUTATE, "shoots", ""),
    "CloudProfile": (VALIDATE, "cloudprofiles", ""),
    "NamespacedCloudProfile": (VALIDATE, "namespacedcloudprofiles", ""),
    "status of a NamespacedCloudProfile": (MUTATE, "namespacedcloudprofiles", "status"),
    "WorkloadIdentity": (VALIDATE, "workloadidentities", ""),
    "Secret": (SECRETS, "secrets", ""),
}
"""Path of the webhook, resource and subresource of each kind."""


def cases(seed: str, kind: str, count: int, parents: Iterable[str]) -> Iterator[Case]:
    """Reviews of a kind; in every third one the object has been changed somewhere."""
    lot, names = Lot(f"{seed} {kind}"), tuple(parents)
    path, resource, subresource = KINDS[kind]
    for number in range(count):
        lot.oddness = lot.one(0.0, 0.03, 0.1)
        yield _case(lot, path, resource, subresource, names, change=number % 3 == 0)


def ranges() -> Iterator[Case]:
    """A review of a Shoot for each spelling of a range of nodes, hosted and self-hosted."""
    for pool, start, length in itertools.product(
        ({"name": "one"}, {"name": "one", "controlPlane": {}}),
        (*_STARTS, *_ODD_STARTS),
        (*_LENGTHS, *_ODD_LENGTHS),
    ):
        spec = {"networking": {"nodes": f"{start}{length}"}, "provider": {"type": "local", "workers": [pool]}}
        metadata = {"name": "local", "namespace": "garden-local"}
        head = {"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot"}
        shoot = {**head, "metadata": metadata, "spec": spec}
        yield Case(VALIDATE, admission_review(shoot, "shoots"), "", Change("nothing"))


def _case(
    lot: Lot, path: str, resource: str, subresource: str, names: tuple[str, ...], *, change: bool
) -> Case:
    draw: Mapping[str, Callable[[], Drawn]] = {
        "shoots": lot.shoot,
        "cloudprofiles": lot.cloud_profile,
        "namespacedcloudprofiles": lambda: lot.namespaced_profile(*names),
        "workloadidentities": lot.workload_identity,
        "secrets": lot.secret,
    }
    object = draw[resource]()
    changed = _changed(lot, object) if change else Change("nothing")
    old = lot.one(None, draw[resource](), object)
    request: Drawn = {"operation": "CREATE" if old is None else "UPDATE", "oldObject": old}
    if subresource:
        request["subResource"] = subresource
    parent = mapping(mapping(object.get("spec")).get("parent")).get("name")
    return Case(path, admission_review(object, resource, **request), str(parent or ""), changed)


def _changed(lot: Lot, object: Drawn) -> Change:
    """Change the object somewhere: a value of a wrong type, an unknown field, or another version."""
    places = [one for one in _places(object) if one[0] not in ("metadata", "apiVersion", "kind")]
    how: Literal["type", "unknown", "version"] = lot.one(
        "type", "type", "type", "unknown", "unknown", "version"
    )
    if how == "version" or not places:
        group, slash, _ = object["apiVersion"].rpartition("/")
        object["apiVersion"] = f"{group}{slash}{lot.one('v1', 'v2alpha1')}"
        return Change("version", ("apiVersion",), object["apiVersion"])
    *above, last = lot.one(*places)
    parent: Any = object
    for step in above:
        parent = parent[step]
    if how == "unknown" and isinstance(parent, dict):
        last, value = "unknown", lot.one(1, None, "x", {"a": 1})
    else:
        how, value = "type", lot.one(5, "x", True, 1.5, ["x"], {"a": "b"}, [None])
    parent[last] = value
    return Change(how, (*above, last), value)


def _places(inside: Any, before: Place = ()) -> Iterator[Place]:
    steps = (
        inside.items() if isinstance(inside, dict) else enumerate(inside) if isinstance(inside, list) else ()
    )
    for step, value in steps:
        yield (*before, step)
        yield from _places(value, (*before, step))
