"""The real etcd-druid in a sandbox, and Etcd objects as Gardener writes them."""

from __future__ import annotations

import base64
import functools
import http.client
import json
import shutil
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.servers import certificates
from sandbox.servers.apiserver import ApiServer
from tests.support.helm import helm
from tests.support.worldwithnodes import kubectl
from tools.gardener import programs
from tools.gardener.base import Base

Json = dict[str, Any]

NAME = "etcd-main"
_MODULE = "github.com/gardener/etcd-druid"
_RELEASES = "europe-docker.pkg.dev/gardener-project/releases/gardener"
_DRUID = "druid.gardener.cloud/v1alpha1"
_BUNDLE = "bundle.crt"
_PATIENCE = 420


def deploy_druid(kubeconfig: Path) -> None:
    """etcd-druid by its own chart, with the version of etcd that Gardener's local set-up chooses."""
    version = programs.PROGRAMS["etcd-druid"].version
    chart = programs.source(_MODULE, version) / "charts"
    values = {
        "image.repository": f"{_RELEASES}/etcd-druid",
        "image.tag": f"v{version}",
        "operatorConfig.featureGates.UpgradeEtcdVersion": "true",
        "operatorConfig.controllers.etcd.etcdStatusSyncPeriod": "2s",
    }
    given = [f"--set={name}={value}" for name, value in values.items()]
    rendered = helm("template", "etcd-druid", str(chart), "--namespace=garden", *given)
    assert rendered.returncode == 0, rendered.stderr
    kubectl(kubeconfig, "create", "namespace", "garden")
    kubectl(kubeconfig, "apply", "--server-side", "--filename", str(chart / "crds"))
    kubectl(kubeconfig, "apply", "--server-side", "--filename=-", stdin=rendered.stdout)


@dataclass(frozen=True)
class Etcd:
    """The Etcd `etcd-main` of a namespace, which is also its prefix in the bucket."""

    base: Base
    namespace: str
    bucket: str
    folder: Path
    """For its certificates."""

    @property
    def api(self) -> ApiServer:
        return self.base.api

    @functools.cached_property
    def authority(self) -> certificates.Pair:
        return certificates.authority(self.folder)

    @property
    def store(self) -> Json:
        return {
            "provider": "local",
            "container": self.bucket,
            "prefix": f"{self.namespace}/{NAME}",
            "secretRef": {"name": "etcd-backup"},
        }

    def prepare(self) -> None:
        """Its namespace and Secrets."""
        self._apply("v1", "Namespace", self.namespace, {}, namespaced=False)
        hosts = [f"{NAME}-local", "localhost"]
        for service, pod in ((f"{NAME}-client", ""), (f"{NAME}-peer", "*.")):
            long = f"{pod}{service}.{self.namespace}"
            hosts += [f"{pod}{service}", long, f"{long}.svc", f"{long}.svc.cluster.local"]
        server = certificates.server(self.authority, self.folder, "server", hosts, peers=True)
        client = certificates.client(self.authority, self.folder, "etcd-client")
        self._secret("etcd-backup", {"hostPath": "/etc/gardener/local-backupbuckets"})
        self._secret("ca-etcd", {_BUNDLE: self.authority.certificate.read_text()})
        for name, pair in (("etcd-server", server), ("etcd-client", client)):
            self._secret(name, {"tls.crt": pair.certificate.read_text(), "tls.key": pair.key.read_text()})

    def reconcile(self, replicas: int) -> None:
        """Ask for so many members, and wait until they are ready, or gone."""
        annotations = {"gardener.cloud/operation": "reconcile"}
        self._apply(_DRUID, "Etcd", NAME, {"spec": self._spec(replicas)}, annotations=annotations)
        self._wait(f"/apis/{_DRUID}", "etcds", NAME, lambda found: _settled(found, replicas))
        if not replicas:
            # etcd-druid often reconciles twice, and a request that comes before the second time is lost.
            self._wait("/apis/apps/v1", "statefulsets", NAME, lambda found: not found["status"]["replicas"])

    def copy_backups(self, source: Etcd) -> None:
        """What Gardener does before it restores a control plane on another seed."""
        spec = {
            "sourceStore": source.store,
            "targetStore": self.store,
            "maxBackups": 1,
            "waitForFinalSnapshot": {"enabled": True, "timeout": "2m0s"},
        }
        self._apply(_DRUID, "EtcdCopyBackupsTask", NAME, {"spec": spec})
        self._wait(f"/apis/{_DRUID}", "etcdcopybackupstasks", NAME, lambda found: _holds(found, "Succeeded"))

    def pod(self, other_than: str = "") -> Json:
        """Its Pod, ready, and not the one with that UID."""
        return self._wait(
            "/api/v1", "pods", f"{NAME}-0",
            lambda found: found["metadata"]["uid"] != other_than and _holds(found, "Ready"),
        )  # fmt: skip

    def kill(self) -> None:
        """Delete its Pod, and wait until another one is ready."""
        uid = self.pod()["metadata"]["uid"]
        self.api.request("DELETE", f"/api/v1/namespaces/{self.namespace}/pods/{NAME}-0").close()
        self.pod(other_than=uid)

    def lose_data(self) -> None:
        """Empty the volume below the running etcd."""
        [volume] = (self.base.folder / "volumes").glob(f"*_{self.namespace}_*")
        for path in volume.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def put(self, key: str, value: str) -> None:
        self._ask("/v3/kv/put", {"key": _encoded(key), "value": _encoded(value)})

    def value(self, key: str) -> str | None:
        found = self._ask("/v3/kv/range", {"key": _encoded(key)}).get("kvs")
        return base64.b64decode(found[0]["value"]).decode() if found else None

    def snapshot(self, kind: str = "full", *, final: bool = False) -> None:
        """Take a `full` one now, or a `delta` since the last one, once etcd-backup-restore leads."""
        limit = time.monotonic() + 60
        while (answer := self._request(8080, "GET", f"/snapshot/{kind}?final={json.dumps(final)}"))[0] != 200:
            assert time.monotonic() < limit, answer
            time.sleep(0.5)  # no event tells that it leads

    def wait_for_backup(self) -> None:
        """Gardener's checks want it. Without a request, the first delta is taken after five minutes."""
        self._wait(f"/apis/{_DRUID}", "etcds", NAME, lambda found: _holds(found, "BackupReady"))

    def _ask(self, path: str, body: Json) -> Json:
        status, text = self._request(2379, "POST", path, body)
        assert status == 200, (path, status, text)
        return dict(json.loads(text))

    def _request(self, port: int, method: str, path: str, body: Json | None = None) -> tuple[int, bytes]:
        context = ssl.create_default_context(cafile=self.authority.certificate)
        context.check_hostname = False  # the certificate has no address
        client = certificates.client(self.authority, self.folder, "etcd-client")
        context.load_cert_chain(client.certificate, client.key)
        address = self.pod()["status"]["podIP"]
        connection = http.client.HTTPSConnection(address, port, context=context, timeout=60)
        connection.request(method, path, json.dumps(body) if body else None)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, text

    def _spec(self, replicas: int) -> Json:
        labels = {"app": "etcd-statefulset", "role": "main"}
        tls = {
            "tlsCASecretRef": {"name": "ca-etcd", "dataKey": _BUNDLE},
            "serverTLSSecretRef": {"name": "etcd-server"},
            "clientTLSSecretRef": {"name": "etcd-client"},
        }
        return {
            "replicas": replicas,
            "labels": labels,
            "selector": {"matchLabels": labels},
            "etcd": {
                "clientUrlTls": tls,
                # Gardener secures the traffic between members once there are some.
                **({"peerUrlTls": tls} if replicas > 1 else {}),
                "clientPort": 2379,
                "serverPort": 2380,
                "wrapperPort": 9095,
                "metrics": "extensive",
                "quota": "8Gi",
                "defragmentationSchedule": "1 1 * * *",
                "enableGRPCGateway": True,  # for this test; Gardener does without
            },
            "backup": {
                "tls": tls,
                "port": 8080,
                "store": self.store,
                "fullSnapshotSchedule": "1 1 * * *",
                "deltaSnapshotPeriod": "5m0s",
                "deltaSnapshotMemoryLimit": "100Mi",
                "garbageCollectionPolicy": "Exponential",
                "garbageCollectionPeriod": "12h0m0s",
                "compression": {"enabled": True, "policy": "gzip"},
            },
            "sharedConfig": {"autoCompactionMode": "periodic", "autoCompactionRetention": "30m"},
            "storageCapacity": "1Gi",
            "volumeClaimTemplate": "main-etcd",
        }

    def _secret(self, name: str, content: dict[str, str]) -> None:
        self._apply("v1", "Secret", name, {"stringData": content})

    def _apply(
        self, version: str, kind: str, name: str, body: Json, *, namespaced: bool = True, **metadata: Any
    ) -> None:
        metadata |= {"name": name} | ({"namespace": self.namespace} if namespaced else {})
        self.api.apply_object({"apiVersion": version, "kind": kind, "metadata": metadata, **body})

    def _wait(self, root: str, plural: str, name: str, done: Callable[[Json], bool]) -> Json:
        path = f"{root}/namespaces/{self.namespace}/{plural}?fieldSelector=metadata.name={name}"
        found: Json = {}
        for event in self.api.events(path, seconds=_PATIENCE):
            found = event["object"]
            if event["type"] != "DELETED" and done(found):
                return found
        raise TimeoutError(f"{plural} {self.namespace}/{name}: {json.dumps(found.get('status'))}")


def _settled(etcd: Json, replicas: int) -> bool:
    """What Gardener waits for, and that the number of members is the one that was asked for."""
    status = etcd.get("status", {})
    seen = status.get("observedGeneration") == etcd["metadata"]["generation"]
    reconciled = status.get("lastOperation", {}).get("state") == "Succeeded"
    asked = "gardener.cloud/operation" in etcd["metadata"].get("annotations", {})
    if not seen or not reconciled or asked or status.get("currentReplicas", 0) != replicas:
        return False
    return not replicas or (status.get("ready") is True and _holds(etcd, "AllMembersReady"))


def _holds(found: Json, condition: str) -> bool:
    conditions = found.get("status", {}).get("conditions", [])
    return any(one["type"] == condition and one["status"] == "True" for one in conditions)


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
