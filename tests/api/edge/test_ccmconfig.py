"""In the place of cloud-controller-manager-local, with its own configuration file."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from bus import streams, subjects
from bus.clusters.clusters import clusters
from bus.clusters.registry import MachinePlace, Member, Registry
from bus.leases.leases import Leases
from bus.transport.connection import Bus
from commands.roles import ccmconfig
from sandbox.servers import certificates, kubeconfigs
from tests.support import loopback
from tests.support.rules import rule
from tests.support.running import eventually, running
from tests.support.servers import ControlPlane
from watchers.watching import Watching
from windowbox.clients.kubernetes import kube
from windowbox.errors import Conflict, Malformed
from windowbox.models.refs import PODS, ObjectRef
from windowbox.settings.lbsettings import LoadBalancerSettings

NAMESPACE = "infra-takeover"
_RBAC = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"


def settings(folder: Path, text: str) -> LoadBalancerSettings:
    file = folder / "config.yaml"
    file.write_text(f"apiVersion: local.provider.gardener.cloud/v1alpha1\nkind: CloudProviderConfig\n{text}")
    return LoadBalancerSettings(cloud_config=file, image="our/own:1")


@rule("LB-8-config")
def test_the_file_of_a_runtime_cluster_brings_its_image(tmp_path: Path) -> None:
    found = ccmconfig.applied(settings(tmp_path, "loadBalancer:\n  image: theirs/envoy:2\n"))
    assert found.settings.image == "theirs/envoy:2"
    assert (found.infrastructure, found.machines) == (None, None)


def test_without_a_file_the_settings_stay_as_they_are() -> None:
    assert ccmconfig.applied(LoadBalancerSettings()) == ccmconfig.CcmConfig(LoadBalancerSettings())


def test_an_unknown_field_is_named(tmp_path: Path) -> None:
    with pytest.raises(Malformed, match=r"loadBalancer\.imgae"):
        ccmconfig.applied(settings(tmp_path, "loadBalancer:\n  imgae: theirs/envoy:2\n"))


@rule("LB-8-config")
async def test_machines_are_followed_with_rights_in_one_namespace(
    bus: Bus, control_plane: ControlPlane, tmp_path: Path
) -> None:
    kubeconfig = _limited(control_plane, tmp_path)
    text = f"runtimeCluster:\n  namespace: {NAMESPACE}\n  kubeconfig: {kubeconfig}\n"
    found = ccmconfig.applied(settings(tmp_path, text))
    assert found.infrastructure
    assert found.machines == MachinePlace(cluster=found.infrastructure.id, namespace=NAMESPACE)
    files = {found.infrastructure.id: kubeconfig}
    async with (
        kube.from_file(control_plane.kubeconfig) as api,
        clusters(api, registry := Registry(bus), loopback.SETTINGS, files) as opened,
    ):
        for space in (NAMESPACE, "default"):
            container = {"name": "node", "image": "none", "imagePullPolicy": "Never"}
            pod = _object("Pod", "v1", "machine-1", labels={"app": "machine"})
            pod["spec"] = {"containers": [container], "automountServiceAccountToken": False}
            with contextlib.suppress(Conflict):
                await api.create(PODS, space, pod)
        watching = Watching(bus, leases := Leases(bus, "watcher", "watch"), opened, registry, ())
        work = (registry.run(), leases.run(), watching.run(), ccmconfig.join(registry, found.infrastructure))
        async with running(*work):
            await eventually(lambda: _seen(bus, found.infrastructure, NAMESPACE))
        assert not await _seen(bus, found.infrastructure, "default")


def _limited(plane: ControlPlane, folder: Path) -> Path:
    """The kubeconfig of a user who may read the Pods of one namespace."""

    def apply(path: str, kind: str, version: str, **content: Any) -> None:
        plane.api.apply(path, {**_object(kind, version, path.rpartition("/")[2]), **content})

    for space in (NAMESPACE, "default"):
        apply(f"/api/v1/namespaces/{space}", "Namespace", "v1")
        # No controller creates it here.
        apply(f"/api/v1/namespaces/{space}/serviceaccounts/default", "ServiceAccount", "v1")
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    apply(f"{_RBAC}/roles/takeover", "Role", f"{group}/v1", rules=rules)
    role = {"apiGroup": group, "kind": "Role", "name": "takeover"}
    users = [{"apiGroup": group, "kind": "User", "name": "ccm-of-a-shoot"}]
    apply(f"{_RBAC}/rolebindings/takeover", "RoleBinding", f"{group}/v1", roleRef=role, subjects=users)
    user = certificates.client(plane.api.ca, folder, "ccm-of-a-shoot")
    path = folder / "kubeconfig"
    path.write_text(kubeconfigs.text(plane.api.url, plane.api.ca, user))
    return path


def _object(kind: str, version: str, name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}}


async def _seen(bus: Bus, member: Member | None, namespace: str) -> bool:
    assert member
    ref = ObjectRef(member.id, PODS.id, namespace, "machine-1")
    return await bus.last(streams.OBJECTS, subjects.seen(ref)) is not None
