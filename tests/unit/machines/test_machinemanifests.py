"""The objects of a Machine: Pod, Service, Secrets; and the specs that ask for them."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest
import yaml

from tests.support.cases import cases
from tests.support.rules import rule
from tests.unit.machines.samples import NOW, machine, machine_class
from windowbox.errors import Malformed
from windowbox.models.objects import Object
from windowbox.settings.kindsettings import MachineSettings
from workers.machines.machine import machinemanifests, machinespecs, machinestatus

AP = "shoot--local--demo-small-z1-75d8f-x2k9w"
HOME = "shoot--local--demo"


def example() -> machinespecs.MachinePlan:
    """AP1.3 and AP1.5."""
    found = machine_class(
        metadata={"name": "shoot--local--demo-small-z1-7dbbe", "namespace": HOME},
        credentialsSecretRef={"name": "cloudprovider", "namespace": HOME},
        providerSpec={
            "image": "registry.local.gardener.cloud:5001/node:v1.0.0",
            "ipPoolNameV4": "shoot-machine-pods-shoot--local--demo-ipv4",
            "namespace": "infra-shoot--local--demo",
        },
    )
    return machinespecs.plan(Object({"metadata": {"name": AP, "namespace": HOME}}), found)


@rule("AP1.6", "L6", "L40")
def test_the_pod_is_that_of_the_example() -> None:
    found = machinemanifests.pod(example(), docker_socket=True)
    expected = """
    metadata:
      name: machine-NAME
      namespace: infra-shoot--local--demo
      labels: {app: machine, machine: NAME, machine-provider: local}
      annotations:
        machine.windowbox/owner: shoot--local--demo/NAME
        cni.projectcalico.org/ipv4pools: '["shoot-machine-pods-shoot--local--demo-ipv4"]'
    spec:
      dnsPolicy: Default
      containers:
      - name: node
        image: registry.local.gardener.cloud:5001/node:v1.0.0
        imagePullPolicy: IfNotPresent
        securityContext: {privileged: true}
        env: [{name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
        ports: [{name: vpn-shoot, containerPort: 30123, protocol: TCP}]
        readinessProbe:
          exec:
            command:
            - sh
            - -c
            - /usr/bin/kubectl --kubeconfig /var/lib/kubelet/kubeconfig-real get no $NODE_NAME
        volumeMounts:
        - {name: userdata, mountPath: /etc/machine}
        - {name: containerd, mountPath: /var/lib/containerd}
        - {name: run, mountPath: /run}
        - {name: docker-socket, mountPath: /var/run/docker.sock}
        - {name: modules, mountPath: /lib/modules, readOnly: true}
      volumes:
      # Executed by root, and read by no other user: Gardener's own has 511.
      - {name: userdata, secret: {secretName: machine-NAME-userdata, defaultMode: 320}}
      - {name: containerd, emptyDir: {}}
      - {name: run, emptyDir: {medium: Memory}}
      - {name: docker-socket, hostPath: {path: /var/run/docker.sock, type: Socket}}
      - {name: modules, hostPath: {path: /lib/modules}}
    """
    wanted = yaml.safe_load(re.sub(r"\bNAME\b", AP, expected))
    assert {name: found[name] for name in wanted} == wanted
    without = machinemanifests.pod(example(), docker_socket=False)["spec"]
    assert "docker-socket" not in str(without)


@rule("L7", "L8", "L10", "B.32")
def test_resources_zone_and_volumes_come_from_the_class() -> None:
    amounts = {"cpu": "2", "memory": "4Gi"}
    spec = {
        "image": "i",
        "zone": "local-a",
        "resources": {"requests": amounts, "limits": amounts},
        "volumes": [{"name": "root", "size": "20Gi"}, {"name": "logs", "size": "5Gi"}],
    }
    plan = machinespecs.plan(machine(), machine_class(providerSpec=spec))
    found = machinemanifests.pod(plan, docker_socket=False)["spec"]
    assert found["nodeSelector"] == {"topology.kubernetes.io/zone": "local-a"}
    [node] = found["containers"]
    assert node["resources"] == {"requests": amounts, "limits": amounts}
    volumes = {one["name"]: one for one in found["volumes"]}
    assert volumes["containerd"]["emptyDir"] == {"sizeLimit": "20Gi"}
    assert volumes["data-logs"]["emptyDir"] == {"sizeLimit": "5Gi"}
    assert {"name": "data-logs", "mountPath": "/mnt/volumes/logs"} in node["volumeMounts"]


@rule("AP1.6", "B4-R2", "B4-R3")
def test_secret_and_service_are_those_of_the_example() -> None:
    expected = """
    - apiVersion: v1
      kind: Secret
      metadata: {name: machine-NAME-userdata, namespace: infra-shoot--local--demo, ownerReferences: [OWNER]}
      data: {userdata: c2NyaXB0}
    - apiVersion: v1
      kind: Service
      metadata:
        name: machine-NAME
        namespace: infra-shoot--local--demo
        labels: &labels {app: machine, machine: NAME, machine-provider: local}
        ownerReferences:
        - OWNER
      spec:
        type: ClusterIP
        clusterIP: None
        publishNotReadyAddresses: true
        selector: *labels
        ports: [{name: ssh, port: 22, protocol: TCP, appProtocol: ssh}]
    """
    owner = f"{{apiVersion: v1, kind: Pod, name: machine-{AP}, uid: pod-uid, "
    owner += "controller: true, blockOwnerDeletion: true}"
    wanted = yaml.safe_load(expected.replace("OWNER", owner).replace("NAME", AP))
    secret = machinemanifests.user_data_secret(example(), "pod-uid", b"script")
    assert [secret, machinemanifests.service(example(), "pod-uid")] == wanted


@rule("AP1.7", "B8-R3")
def test_the_token_is_that_of_the_example() -> None:
    found = machinemanifests.token_secret(AP, "78326b", "4q8zt1m0w6c2rj9d", NOW)
    assert found["metadata"] == {"name": "bootstrap-token-78326b", "namespace": "kube-system"}
    assert found["type"] == "bootstrap.kubernetes.io/token"
    decoded = {key: base64.b64decode(value).decode() for key, value in found["data"].items()}
    assert decoded == {
        "description": f'A bootstrap token for machine "{AP}" generated by MachineControllerManager.',
        "token-id": "78326b",
        "token-secret": "4q8zt1m0w6c2rj9d",
        "expiration": "2026-08-21T10:00:00Z",
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        "auth-extra-groups": "",
    }


def test_only_text_in_the_form_of_a_token_gets_into_user_data() -> None:
    """Users of the Shoot may have made the Secret."""

    def known(secret: str, machine: str = AP) -> str | None:
        made = machinemanifests.token_secret(AP, "78326b", secret, NOW)
        return machinemanifests.secret_in(Object(made), machine)

    good = "4q8zt1m0w6c2rj9d"
    assert known(good) == good
    assert known(good, "other") is None
    for wrong in ("", good[1:], good + "0", good + "\n", good.upper(), "$(reboot)", "a; reboot; echo b"):
        assert known(wrong) is None


@cases(
    "content token filled",
    ("B8-R4", b"a <<BOOTSTRAP_TOKEN>> <<BOOTSTRAP_TOKEN>>", "i.s", b"a i.s i.s"),
    ("B8-R4+encoded", b"%3C%3CBOOTSTRAP_TOKEN%3E%3E", "i.s", b"i.s"),
    (
        "B8-R4+both",
        b"<<BOOTSTRAP_TOKEN>>%3C%3CBOOTSTRAP_TOKEN%3E%3E",
        "i.s",
        b"i.s%3C%3CBOOTSTRAP_TOKEN%3E%3E",
    ),
    ("B8-R5", b"<<MACHINE_NAME>>", "i.s", b"m"),
    ("B8-R5+encoded", b"%3C%3CMACHINE_NAME%3E%3E", None, b"m"),
    ("B8-R6", b"<<BOOTSTRAP_TOKEN>>", None, b"<<BOOTSTRAP_TOKEN>>"),
    ("B8-R5+none", b"\xff\x00", "i.s", b"\xff\x00"),
)
def test_placeholders_are_filled(content: bytes, token: str | None, filled: bytes) -> None:
    assert machinemanifests.filled(content, "m", token) == filled


@rule("B2-R1", "B8-R1")
def test_a_class_secret_without_user_data_is_malformed() -> None:
    with pytest.raises(Malformed, match="Secret a/b has no key 'userData': put"):
        machinemanifests.user_data({"other": b""}, "Secret a/b")


@cases(
    "fields words",
    ("B2-R3", {"provider": "aws"}, "provider is 'aws': set it to local"),
    ("L13+spec", {"providerSpec": None}, "providerSpec is missing: give it an object"),
    ("L13+no-spec", {"providerSpec": ...}, "providerSpec is missing"),
    ("L13+list", {"providerSpec": []}, "providerSpec is []"),
    ("B2", {"providerSpec": {}}, "providerSpec.image is missing"),
    ("A8-R8", {"providerSpec": {"image": ""}}, "providerSpec.image is ''"),
    ("B2+namespace", {"providerSpec": {"image": "i", "namespace": "../x"}}, "namespace is '../x'"),
    ("B2+long", {"providerSpec": {"image": "i" * 5000}}, "image is 'iiii"),
    (
        "B2+resources",
        {"providerSpec": {"image": "i", "resources": {"requests": {"cpu": "many"}}}},
        "resources.requests.cpu is 'many'",
    ),
    ("B2+volumes", {"providerSpec": {"image": "i", "volumes": {}}}, "volumes is {}"),
    ("L13+credentials", {"credentialsSecretRef": None}, "credentialsSecretRef is missing"),
    ("L13+secret", {"secretRef": {"name": 5}}, "secretRef.name is 5"),
    ("B6-R5", {"secretRef": {"name": "a", "namespace": "shoot--other"}}, "namespace is 'shoot--other'"),
    ("L13+template", {"nodeTemplate": None}, "nodeTemplate is missing"),
    ("B1", {"nodeTemplate": {"capacity": {"cpu": "1", "memory": "1"}}}, "capacity has no gpu"),
)
def test_an_invalid_class_names_field_and_remedy(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(Malformed) as raised:
        machinespecs.plan(machine(), machine_class(**fields))
    assert words in str(raised.value)
    assert len(str(raised.value)) < 300
    assert machinestatus.error_code(raised.value) == "InvalidArgument"


@rule("B2-R2")
def test_unknown_fields_of_a_provider_spec_are_ignored() -> None:
    spec = {"apiVersion": "x", "image": "i", "zap": {"a": [1]}}
    assert machinespecs.plan(machine(), machine_class(providerSpec=spec)).namespace == "shoot--l--d"


@cases(
    "text seconds",
    ("minutes", "20m", 1200.0),
    ("hours-and-minutes", "1h30m", 5400.0),
    ("zeros", "1h0m0s", 3600.0),
    ("fraction", "1.5s", 1.5),
    ("no-unit", "20", None),
    ("empty", "", None),
    ("letter", "x", None),
    ("many-digits", "9" * 100_000, None),
    ("ten-years-at-most", "99999999999999999h", 315360000.0),
)
def test_durations_are_those_of_go(text: str, seconds: float | None) -> None:
    assert machinespecs.duration(text) == seconds


@rule("B9-R4")
def test_fields_of_a_machine_override_settings() -> None:
    settings = MachineSettings()
    given = {"creationTimeout": "5m", "healthTimeout": "1m", "drainTimeout": "nonsense"}
    given["inPlaceUpdateTimeout"] = "90s"
    own = machine(**given, maxEvictRetries=7, nodeConditions="A, B")
    wanted = machinespecs.Timeouts(300.0, 60.0, 7200.0, 90.0, 7, ("A", "B"))
    assert machinespecs.timeouts(own, settings) == wanted
    plain = machinespecs.timeouts(machine(disableHealthTimeout=True), settings)
    assert (plain.creation, plain.health, plain.evict_retries) == (1200.0, None, 360)
