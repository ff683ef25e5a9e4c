"""All settings: from a file, the environment (`WINDOWBOX_…`) and flags; the later wins."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field, SecretStr, ValidationError, WithJsonSchema, field_validator

from windowbox import features
from windowbox.errors import Malformed
from windowbox.features import FEATURES
from windowbox.kinds import RESOURCES, WATCHED
from windowbox.settings import environment, goflags, imagevector
from windowbox.settings.bussettings import Access, Balancing, Deciding, Retention, Zone
from windowbox.settings.cloudsettings import CloudSettings
from windowbox.settings.clustersettings import EgressSettings, GardenSettings, GrantSettings, JoinSettings
from windowbox.settings.dnssettings import DnsSettings
from windowbox.settings.kindsettings import (
    BackupSettings,
    ControlPlaneSettings,
    HealthSettings,
    HeartbeatSettings,
    ImageSettings,
    InfrastructureSettings,
    KindSettings,
    MachineSettings,
)
from windowbox.settings.lbsettings import LoadBalancerSettings
from windowbox.settings.section import PrivateSection
from windowbox.settings.uisettings import UiSettings
from windowbox.settings.webhooksettings import WebhookSettings
from windowbox.telemetry.logs import LogFormat

Kind = Annotated[str, WithJsonSchema({"type": "string", "enum": sorted(RESOURCES)})]
ExtensionClass = Literal["garden", "seed", "shoot"]


def _number(value: object) -> object:
    """Values from the environment are texts, which a Literal of numbers refuses."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


class NatsSettings(PrivateSection):
    url: str = Field(
        "nats://127.0.0.1:4222",
        description="URLs of the NATS servers, separated by commas. "
        "Servers that are not on this machine's loopback have to speak TLS.",
    )
    user: str | None = Field(None, description="The role's user on the bus.")
    password: SecretStr | None = Field(None, description="Password of that user.")
    ca: Path | None = Field(
        None,
        description="File with the certificate authorities of the servers. Unset: those that this machine "
        "trusts. If set, servers on loopback have to speak TLS, too.",
    )
    cert: Path | None = Field(
        None, description="File with the client certificate, for servers that verify clients."
    )
    key: Path | None = Field(None, description="File with the private key of that certificate.")
    creds: Path | None = Field(
        None,
        description="File with a user's JWT and nkey seed, instead of a password; `user` names the role.",
    )
    replicas: Annotated[Literal[1, 3], BeforeValidator(_number)] = Field(
        1, description="Copies of every stream; 3 requires a NATS cluster."
    )

    def access(self, name: str) -> Access:
        password = self.password.get_secret_value() if self.password else None
        return Access(
            self.url, self.user, password, name, ca=self.ca, cert=self.cert, key=self.key, creds=self.creds
        )


class ClusterSettings(PrivateSection):
    kubeconfig: Path | None = Field(
        None,
        description="Kubeconfig file of the runtime cluster. Unset: the cluster in which this process runs.",
    )
    context: str | None = Field(None, description="Context of the kubeconfig. Unset: its current context.")
    files: dict[str, Path] = Field(
        {},
        description="Kubeconfig files of member clusters, by cluster id. Only files named here are read, "
        "because a kubeconfig file may run programs.",
    )


class WatchSettings(PrivateSection):
    kinds: tuple[Kind, ...] = Field(
        WATCHED, description="Kinds to watch and mirror to the bus, as plural.group."
    )
    page: int = Field(500, ge=1, description="Objects in each page of a listing.")

    @field_validator("kinds")
    @classmethod
    def _known(cls, kinds: tuple[str, ...]) -> tuple[str, ...]:
        for kind in kinds:
            if kind not in RESOURCES:
                raise ValueError(f"unknown kind {kind!r}; known are {', '.join(sorted(RESOURCES))}")
        return kinds


class ObjectsSettings(PrivateSection):
    """The stream OBJECTS, the mirror of all clusters on the bus."""

    size: int = Field(4096, ge=64, description="Maximum size of OBJECTS, the mirror of all clusters, in MiB.")
    versions: int = Field(
        3,
        ge=2,
        le=64,
        description="Versions kept of each object, for `trace` and `record`. Fewer while OBJECTS is full.",
    )
    share: float = Field(
        0.25,
        gt=0,
        le=1,
        description="Part of OBJECTS that one cluster may use; the runtime cluster has no limit. Beyond it, "
        "new objects are mirrored without content; see docs/operations.md.",
    )

    @property
    def retention(self) -> Retention:
        return Retention(self.size << 20, self.versions)


class WorkSettings(PrivateSection):
    concurrency: int = Field(64, ge=1, description="Objects that each process reconciles concurrently.")
    ack_wait: float = Field(
        10.0, ge=2, description="Seconds without a sign of life after which an item goes to another worker."
    )
    sweep_interval: float = Field(60.0, gt=0, description="Seconds between two sweeps for lost wishes.")
    classes: tuple[ExtensionClass, ...] = Field((), description="Extension classes to serve. Empty: `shoot`.")
    ignore_operation_annotation: bool = Field(
        False, description="Reconcile on every change of a spec, not only on the operation annotation."
    )


class PatchSettings(PrivateSection):
    concurrency: int = Field(64, ge=1, description="Objects that each process patches concurrently.")
    rate: float = Field(0.0, ge=0, description="Patches per second and process. 0: no limit.")


class LogSettings(PrivateSection):
    format: LogFormat = Field("auto", description="`auto`: `human` on a terminal, `json` otherwise.")
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest level to log.")


class Settings(PrivateSection):
    nats: NatsSettings = NatsSettings()
    cluster: ClusterSettings = ClusterSettings()
    watch: WatchSettings = WatchSettings()
    objects: ObjectsSettings = ObjectsSettings()
    work: WorkSettings = WorkSettings()
    patch: PatchSettings = PatchSettings()
    dns: DnsSettings = DnsSettings(zones=[])
    loadbalancer: LoadBalancerSettings = LoadBalancerSettings()
    join: JoinSettings = JoinSettings()
    egress: EgressSettings = EgressSettings()
    garden: GardenSettings = GardenSettings()
    grant: GrantSettings = GrantSettings()
    controlplane: ControlPlaneSettings = ControlPlaneSettings()
    infrastructure: InfrastructureSettings = InfrastructureSettings()
    backup: BackupSettings = BackupSettings()
    heartbeat: HeartbeatSettings = HeartbeatSettings()
    machines: MachineSettings = MachineSettings()
    images: ImageSettings = ImageSettings()
    health: HealthSettings = HealthSettings()
    webhooks: WebhookSettings = WebhookSettings()
    clouds: CloudSettings = CloudSettings()
    ui: UiSettings = UiSettings()
    log: LogSettings = LogSettings()
    feature_gates: dict[str, bool] = Field(
        {},
        json_schema_extra={"propertyNames": {"enum": [one.name for one in FEATURES]}},
        description=f"Features to switch: {'; '.join(f'{one}: {one.about}' for one in FEATURES)}.",
    )
    metrics: str = Field(
        "127.0.0.1:0", description="host:port of /metrics, /healthz and /readyz. Port 0: any free port."
    )
    probes: str = Field("", description="A second host:port for the same. Empty: none.")

    @field_validator("feature_gates")
    @classmethod
    def _switchable(cls, gates: dict[str, bool]) -> dict[str, bool]:
        if why := features.refusal(gates):
            raise ValueError(why)
        return gates

    @property
    def kinds(self) -> KindSettings:
        """The settings of kinds that create objects."""
        return KindSettings(
            controlplane=self.controlplane,
            infrastructure=self.infrastructure,
            backup=self.backup,
            heartbeat=self.heartbeat,
            machines=self.machines,
            health=self.health,
            images=imagevector.load(self.images.overwrite),
            webhooks=self.webhooks,
            clouds=self.clouds,
        )

    @property
    def deciding(self) -> Deciding:
        """The settings that runs depend on, without addresses of servers and secrets."""
        return Deciding(
            zones=tuple(Zone(**zone.model_dump(include=set(Zone.model_fields))) for zone in self.dns.zones),
            classes=self.work.classes,
            ignore_operation_annotation=self.work.ignore_operation_annotation,
            balancing=Balancing(**self.loadbalancer.model_dump(include=set(Balancing.model_fields))),
            kinds=self.kinds,
        )


def load(file: Path | None, flags: dict[str, Any] | None = None) -> Settings:
    """The settings of this process. Malformed names the setting, its value and the remedy."""
    content = _read(file) if file else {}
    known = set(Settings.model_fields)
    if unknown := set(content) - known:
        raise Malformed(
            f"{file}: unknown settings {', '.join(sorted(map(str, unknown)))}; "
            f"known are {', '.join(sorted(known))}"
        )
    try:
        content = _merged(goflags.environment(os.environ), content)
        content = _merged(content, environment.settings(os.environ, Settings))
        return Settings.model_validate(_merged(content, flags or {}))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        places = f" (from {file}, the environment or a flag)" if file else ""
        raise Malformed(f"setting {where}{places}: {first['msg']}") from error


def _read(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise Malformed(f"settings file {file} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        # The place of the error, without the text there, which may be a secret.
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise Malformed(f"settings file {file} is not YAML{place}: correct it there") from error
    if not isinstance(content, dict):
        raise Malformed(f"settings file {file} must hold a mapping such as `nats: {{url: …}}`")
    return content


def _merged(base: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in above.items():
        below = merged.get(name)
        merged[name] = _merged(below, value) if isinstance(value, dict) and isinstance(below, dict) else value
    return merged
