"""windowbox as an extension in Pods, installed by Gardener's own controllers from the registry's image.

One cluster is that of gardener-operator and the seed, so both installations are in it, beside the process
on the host, which serves the Services. The charts come from files: these controllers have no registry.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox import detached, roles
from sandbox.programs import binaries
from sandbox.servers import kubeconfigs, resourcemanager
from sandbox.shipped import EXAMPLES
from tests.conformance import gardens
from tests.support import installing, servers, standins, worldwithnodes
from tools.gardener import base, extensions, programs
from tools.gardener.base import Base

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

INSTALLATION = "provider-local-4f7xk"
SEED, RUNTIME = f"extension-{INSTALLATION}", "runtime-extension-provider-local"
SHOOT = "shoot--demo--one"
AUTOSCALERS = ("autoscaling.k8s.io", "v1", "verticalpodautoscalers", "VerticalPodAutoscaler", True, True)
HEALTHY = "condition=ResourcesHealthy"
PATIENCE = 240
GARDEN_RECORD = """
apiVersion: extensions.gardener.cloud/v1alpha1
kind: DNSRecord
metadata: {name: garden, namespace: garden}
spec:
  type: local
  class: garden
  name: api.virtual-garden.local.gardener.cloud
  recordType: A
  values: [192.0.2.1]
  secretRef: {name: dns, namespace: garden}
"""
SCHEDULER = f"""
apiVersion: apps/v1
kind: Deployment
metadata:
  name: kube-scheduler
  namespace: {SHOOT}
  labels: {{provider.extensions.gardener.cloud/mutated-by-controlplane-webhook: "true"}}
spec:
  replicas: 0
  selector: {{matchLabels: {{a: b}}}}
  template:
    metadata: {{labels: {{a: b}}}}
    spec: {{containers: [{{name: main, image: "example.org/one:1"}}]}}
"""
SHOOT_LABELS = ("gardener.cloud/role=shoot", "shoot.gardener.cloud/provider=local")


@pytest.fixture(scope="module")
def landscape(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Base]:
    worldwithnodes.need()
    servers.need(installing.PROGRAM, resourcemanager.PROGRAM, "local-path-provisioner")
    if not binaries.cached(programs.PROGRAMS["coredns"]).exists():
        pytest.skip("coredns is not built: run `windowbox gardener build`")
    work = tmp_path_factory.mktemp("gardener")
    folder = work / "sandbox"
    try:
        detached.up(folder, base.options(nodes=1, played=1))
        made = base.prepare(folder)
        standins.define(made.api, (*installing.KINDS, AUTOSCALERS))
        kubectl(made, "create", "namespace", "garden")
        manager = resourcemanager.child(work, made.kubeconfig, made.kubeconfig, "*")
        with servers.running(manager, work), installed(made, work):
            yield made
    finally:
        detached.down(folder, wipe=True)


def kubectl(made: Base, *arguments: str, stdin: str = "") -> str:
    return worldwithnodes.kubectl(made.kubeconfig, *arguments, stdin=stdin, patience=PATIENCE + 10)


def apply(made: Base, *manifests: dict[str, Any]) -> None:
    kubectl(made, "apply", "--filename=-", stdin=yaml.safe_dump_all(manifests))


@contextlib.contextmanager
def installed(made: Base, work: Path) -> Iterator[None]:
    """What gardener-operator and gardenlet install, as long as the former runs."""
    for name in (*installing.CLASSES, installing.SYSTEM_CLASS):
        kubectl(made, "create", "priorityclass", name, "--value=1000")
    core, v1beta1 = "core.gardener.cloud", "core.gardener.cloud/v1beta1"
    seed = {"apiVersion": v1beta1, "kind": "Seed", "metadata": {"name": "local"}, "spec": gardens.SEED}
    apply(made, installing.GARDEN, seed, yaml.safe_load(GARDEN_RECORD))
    for kind, status in (("garden", {"lastOperation": installing.DONE}), ("seed", {"clusterIdentity": "a"})):
        patch = f"--patch={json.dumps({'status': status})}"
        kubectl(made, "patch", kind, "local", "--subresource=status", "--type=merge", patch)
    ours, _ = extensions.operator_extensions(made.plan, made.state.ports["named"])
    manifest, nothing, kubeconfig = work / "extension.yaml", work / "nothing.yaml", work / "kubeconfig"
    manifest.write_text(yaml.safe_dump(ours))
    nothing.write_text("")
    kubeconfig.write_text(kubeconfigs.inline(made.kubeconfig))
    charts = installing.bring_charts(work)
    with (work / "operator.log").open("wb") as log:
        operator = subprocess.Popen(installing.command("operator", kubeconfig, charts, manifest), stderr=log)
    try:
        # Not all of it: admission waits for a token of the virtual garden, which is not here.
        wait(made, "managedresource/extension-provider-local-garden", "create", "garden")
        wait(made, "managedresource/extension-provider-local-garden", HEALTHY, "garden")
        wait(made, "controllerregistration/provider-local", "create")
        refs = {"registrationRef": {"name": "provider-local"}, "deploymentRef": {"name": "provider-local"}}
        apply(made, {
            "apiVersion": v1beta1, "kind": "ControllerInstallation",
            "metadata": {"name": INSTALLATION, "annotations": gardens.PRIVILEGED},
            "spec": {**refs, "seedRef": {"name": "local"}},
        })  # fmt: skip
        gardenlet = installing.command("gardenlet", kubeconfig, charts, nothing)
        subprocess.run(gardenlet, check=True, timeout=PATIENCE)
        # gardenlet's access to the garden, which another of its controllers keeps.
        rule = [f"--resource=seeds.{core}", "--verb=get,patch"]
        kubectl(made, "create", "serviceaccount", "extension", "--namespace=garden")
        kubectl(made, "create", "clusterrole", "extension", *rule)
        kubectl(
            made, "create", "clusterrolebinding", "extension", "--clusterrole=extension",
            "--serviceaccount=garden:extension",
        )  # fmt: skip
        token = kubectl(made, "create", "token", "extension", "--namespace=garden").strip()
        patch = f"--patch={json.dumps({'stringData': {'token': token}})}"
        kubectl(made, "patch", "secret", "garden-access-extension", f"--namespace={SEED}", patch)
        wait(made, f"managedresource/{INSTALLATION}", HEALTHY, "garden")
        yield
    finally:
        operator.terminate()
        operator.wait(10)


def wait(made: Base, what: str, until: str, namespace: str = "default") -> None:
    kubectl(made, "wait", what, f"--for={until}", f"--namespace={namespace}", f"--timeout={PATIENCE}s")


def test_both_installations_serve_their_own_objects(landscape: Base) -> None:
    succeeded = "jsonpath={.status.lastOperation.state}=Succeeded"
    # Of the class garden.
    wait(landscape, "dnsrecord/garden", succeeded, "garden")
    asked = ["dig", f"@{landscape.host}", f"-p{landscape.state.ports['named']}", "+short"]
    name = "api.virtual-garden.local.gardener.cloud"
    said = subprocess.run([*asked, name], capture_output=True, text=True, timeout=10, check=True).stdout
    assert said.split() == ["192.0.2.1"]

    # Of the class shoot.
    kubectl(landscape, "apply", "--filename=-", stdin=(EXAMPLES / "shoot.yaml").read_text())
    kubectl(landscape, "label", "namespace", SHOOT, *SHOOT_LABELS)
    secret = kubeconfigs.secret(SHOOT, roles.provider_kubeconfig(landscape.folder))
    kubectl(landscape, "apply", "--filename=-", stdin=secret)
    for example in ("infrastructure", "operatingsystemconfig", "bastion"):
        kubectl(landscape, "apply", "--filename=-", stdin=(EXAMPLES / f"{example}.yaml").read_text())
    wait(landscape, "infrastructure/one", succeeded, SHOOT)
    wait(landscape, "operatingsystemconfig/one-original", succeeded, SHOOT)
    # The host gives the Bastion's load balancer its address, the extension reports it.
    wait(landscape, "bastion/one", succeeded, SHOOT)
    found = landscape.api.read(f"/apis/extensions.gardener.cloud/v1alpha1/namespaces/{SHOOT}/bastions/one")
    assert ip_address(found["status"]["ingress"]["ip"]) in landscape.plan.balancers_v4


def test_the_api_server_of_the_host_calls_webhooks_by_their_service(landscape: Base) -> None:
    path = f"/apis/apps/v1/namespaces/{SHOOT}/deployments"
    made = landscape.api.create(path, yaml.safe_load(SCHEDULER))
    assert made["spec"]["template"]["metadata"]["labels"]["injected-by"] == "provider-local"


def test_each_windowbox_leaves_the_objects_of_the_others_alone(landscape: Base) -> None:
    annotations = landscape.api.read("/apis/core.gardener.cloud/v1beta1/seeds/local")["metadata"][
        "annotations"
    ]
    assert any("provider-local" in one for one in annotations), "the seed's worker reaches the garden"
    said = ""
    for namespace, deployment in (
        (SEED, "provider-local-windowbox-run"), (RUNTIME, "windowbox-provider-local-runtime-run"),
    ):  # fmt: skip
        said += kubectl(landscape, "logs", f"deployment/{deployment}", f"--namespace={namespace}")
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert lines
    assert not [one for one in lines if "forbidden" in one["message"]]
    events = kubectl(landscape, "get", "events", "--all-namespaces", "--field-selector=type=Warning")
    assert "SyncLoadBalancerFailed" not in events
