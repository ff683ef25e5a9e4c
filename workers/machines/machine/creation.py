"""Makes the Pod, the Secret and the Service of a Machine, and its bootstrap token. Safe to repeat."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from windowbox.errors import Conflict, Malformed, Missing, Refused, TransientError, Waiting
from windowbox.models import machinekeys
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_CLASSES, MACHINES, PODS, SECRETS, SERVICES, ObjectRef
from windowbox.settings.kindsettings import MachineSettings
from workers.core.owned.targets import TargetCluster, TargetClusters, concurrently
from workers.machines.machine import names, specs, userdata, wanted
from workers.machines.machine.orphans import may_be_of
from workers.machines.machine.providerclusters import ProviderClusters
from workers.machines.machine.run import MachineRun
from workers.machines.machine.shoots import Shoots
from workers.machines.machine.specs import MachinePlan, SecretName

MANAGER = "machine-controller-manager-provider-local"
_TOKEN_ATTEMPTS = 3


@dataclass(frozen=True)
class Creation:
    targets: TargetClusters
    shoots: Shoots
    settings: MachineSettings
    providers: ProviderClusters

    async def plan(self, run: MachineRun) -> MachinePlan:
        """What the Machine's class asks for."""
        return specs.plan(run.machine, await _class(run))

    async def place(self, run: MachineRun) -> tuple[str, SecretName]:
        """Where the Machine's Pod is: its namespace, and the Secret that leads to its cluster.

        It takes less than to make the Pod, so that a class that was spoilt later stops no deletion.
        """
        found = await _class(run)
        return specs.pod_namespace(run.machine, found), specs.credentials(found)

    async def attempt(self, run: MachineRun) -> None:
        """Make all that belongs to the Machine. What is there already is only completed."""
        plan = await self.plan(run)
        shoot = await self.shoots.target(run.ref, run.recorder)
        content = _Content()
        ref = ObjectRef(run.ref.cluster, SECRETS.id, plan.user_data.namespace, plan.user_data.name)
        asks_for_token = await content.read(run, ref) and shoot is not None
        await claim(self.targets.own_cluster(run.run), run)
        async with self.targets.provider(run.run, *plan.credentials) as provider:
            self.providers.note(run, plan.credentials, provider.cluster)
            target = dataclasses.replace(provider, manager=MANAGER)
            try:
                if not await self._make(run, plan, target, shoot, content, asks_for_token):
                    standing = await _standing_pod(run, target, plan)
                    await self._complete(run, plan, target, shoot, standing, content, asks_for_token)
            except Missing as error:
                raise TransientError(
                    f"namespace {plan.namespace} is missing in the provider cluster: "
                    "its Infrastructure makes it"
                ) from error

    async def _make(
        self,
        run: MachineRun,
        plan: MachinePlan,
        target: TargetCluster,
        shoot: TargetCluster | None,
        content: _Content,
        asks_for_token: bool,
    ) -> bool:
        """Make all of it. False if there is a Pod of this name already: only then it has to be read."""
        made: list[str | None] = []

        async def pod() -> None:
            manifest = wanted.pod(plan, docker_socket=self.settings.docker_socket)
            made.append(await target.create_if_absent(PODS, manifest))

        async def token() -> None:
            if asks_for_token:
                assert shoot
                content.token = await self._token(run, shoot)

        await concurrently(pod(), token())
        if (uid := made[0]) is None:
            return False
        await concurrently(
            target.apply_secret(wanted.user_data(plan, uid, content.filled(plan.machine))),
            target.apply(SERVICES, wanted.service(plan, uid)),
        )
        return True

    async def _complete(
        self,
        run: MachineRun,
        plan: MachinePlan,
        target: TargetCluster,
        shoot: TargetCluster | None,
        standing: Object,
        content: _Content,
        asks_for_token: bool,
    ) -> None:
        """Add what an existing Pod lacks. A running machine is never changed, whatever program created it."""
        await target.apply(SERVICES, wanted.service(plan, standing.uid))
        if await target.has_secret(plan.namespace, names.user_data(plan.machine)):
            return
        if asks_for_token:
            assert shoot
            content.token = await self._token(run, shoot)
        await target.apply_secret(wanted.user_data(plan, standing.uid, content.filled(plan.machine)))

    async def _token(self, run: MachineRun, shoot: TargetCluster) -> str:
        """The Machine's bootstrap token, which is made at the first attempt and found at later ones."""
        lasting = specs.timeouts(run.machine, self.settings).creation
        found: list[str] = []

        async def act() -> str:
            api = await shoot.connection.api()
            for attempt in range(_TOKEN_ATTEMPTS):
                id = names.token_id(run.machine.uid, attempt)
                secret = userdata.new_token_secret()
                expires = run.now + timedelta(seconds=lasting)
                made = wanted.token(run.ref.name, id, secret, expires)
                try:
                    await api.create(SECRETS, "kube-system", made)
                except Conflict:
                    there = await api.find(SECRETS, "kube-system", names.token(id))
                    data = there.raw.get("data") if there else None
                    if not isinstance(data, Mapping) or not _is_ours(data, run.ref.name):
                        continue
                    secret = _decoded(data.get("token-secret"))
                found.append(f"{id}.{secret}")
                return names.token(id)
            raise TransientError("no free bootstrap token was found")

        await run.recorder.call("token", {"cluster": shoot.cluster}, act, effect=True)
        return found[0] if found else ""


class _Content:
    """The user data, which is never noted."""

    def __init__(self) -> None:
        self._raw = b""
        self.token: str | None = None

    async def read(self, run: MachineRun, secret: ObjectRef) -> bool:
        """Whether it asks for a bootstrap token."""
        where = f"Secret {secret.namespace}/{secret.name}"
        found = await run.recorder.secret(secret, lambda data: userdata.of(data, where))
        self._raw = found or b""

        async def act() -> bool:
            return userdata.asks_for_token(self._raw)

        return bool(await run.recorder.call("user data", None, act))

    def filled(self, machine: str) -> bytes:
        return userdata.filled(self._raw, machine, self.token)


async def _class(run: MachineRun) -> Object:
    name = specs.class_name(run.machine)
    ref = ObjectRef(run.ref.cluster, MACHINE_CLASSES.id, run.ref.namespace, name)
    found = await run.recorder.read(ref)
    if found is None:
        raise Malformed(f"MachineClass {name} does not exist: create it, or correct spec.class.name")
    return found


async def claim(own: TargetCluster, run: MachineRun) -> None:
    """Put finalizer, node and providerID on the Machine, before anything is made for it."""
    machine, pod = run.machine, names.pod(run.ref.name)
    metadata: dict[str, Any] = {}
    if machinekeys.FINALIZER not in machine.finalizers:
        metadata["finalizers"] = [*machine.finalizers, machinekeys.FINALIZER]
    if not machine.labels.get(machinekeys.NODE):
        metadata["labels"] = {machinekeys.NODE: pod}
    if not machine.annotations.get(machinekeys.PRIORITY):
        metadata["annotations"] = {machinekeys.PRIORITY: machinekeys.USUAL_PRIORITY}
    spec = {} if machine.spec.get("providerID") else {"providerID": pod}
    if not metadata and not spec:
        # What is seen on the bus may be older than the Machine's end; a write would have told.
        live = await own.live(MACHINES, run.ref.namespace, run.ref.name)
        if live is None or live.uid != machine.uid or live.deleting:
            raise Conflict(f"Machine {run.ref.name} has changed meanwhile", retry_after=0.2)
        return
    head = {"uid": machine.uid, "resourceVersion": machine.resource_version}
    patch = {"metadata": {**head, **metadata}} | ({"spec": spec} if spec else {})

    async def act() -> str:
        api = await own.connection.api()
        return (await api.merge(MACHINES, run.ref.namespace, run.ref.name, patch)).resource_version

    version = await run.recorder.call("claim", patch, act, effect=True)
    # What is reported next is about this version.
    run.machine = Object(
        {**machine.raw, "metadata": {**machine.metadata, **metadata, "resourceVersion": version}}
    )


async def _standing_pod(run: MachineRun, target: TargetCluster, plan: MachinePlan) -> Object:
    """The Pod of an earlier attempt, or of the machine's life before a restart or a migration."""
    found = await target.live(PODS, plan.namespace, names.pod(plan.machine))
    if found is None:
        raise Conflict(f"Pod {plan.namespace}/{names.pod(plan.machine)} has just gone")
    if not may_be_of(found, run.ref):
        raise Refused(
            f"Pod {found.namespace}/{found.name} belongs to Machine {found.annotations[wanted.OWNER]:.300}: "
            f"give MachineClass {specs.class_name(run.machine)} another providerSpec.namespace, where no "
            "other control plane has its machines"
        )
    if found.deleting:
        raise Waiting(f"waiting for the former Pod {found.name} to be gone", retry_after=5.0)
    return found


def _is_ours(data: Mapping[str, Any], machine: str) -> bool:
    return _decoded(data.get("description")) == wanted.token_description(machine)


def _decoded(value: Any) -> str:
    try:
        return base64.b64decode(str(value), validate=True).decode()
    except ValueError:
        return ""
