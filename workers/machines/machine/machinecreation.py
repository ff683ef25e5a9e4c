"""Creation of what a Machine consists of: Pod, Secret and Service, and its bootstrap token. Idempotent."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from windowbox.errors import Conflict, Malformed, Missing, Refused, TransientError, Waiting
from windowbox.models import machinekeys
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_CLASSES, MACHINES, PODS, SECRETS, SERVICES, ObjectRef
from windowbox.settings.kindsettings import MachineSettings
from workers.core.owned.targets import TargetCluster, TargetClusters, concurrently
from workers.machines import names
from workers.machines.machine import machinemanifests as manifests
from workers.machines.machine import machinespecs
from workers.machines.machine.cloudmachines import CloudMachines
from workers.machines.machine.machinespecs import MachinePlan, SecretName
from workers.machines.machine.machinestatus import MachineRun
from workers.machines.machine.machineviews import ProviderClusters, Shoots

MANAGER = "machine-controller-manager-provider-local"
"""Field manager of the objects, as in Gardener's driver, whose machines we take over."""
_TOKEN_ATTEMPTS = 3


@dataclass(frozen=True)
class MachineCreation:
    targets: TargetClusters
    shoots: Shoots
    settings: MachineSettings
    providers: ProviderClusters
    clouds: CloudMachines

    async def place(self, run: MachineRun) -> tuple[str, SecretName]:
        """Where the Machine's Pod is: its namespace, and the Secret that leads to its cluster.

        Reads fewer fields than a creation: a class that became invalid later must not block a deletion.
        """
        found = await _class(run)
        if self.clouds.cloud_of(found):
            return self.clouds.place(run)
        return machinespecs.pod_namespace(run.machine, found), machinespecs.credentials(found)

    async def ensure(self, run: MachineRun) -> None:
        """Create the objects of the Machine. Existing ones are only completed."""
        found = await _class(run)
        cloud = self.clouds.cloud_of(found)
        plan = await self.clouds.plan(run, found, cloud) if cloud else machinespecs.plan(run.machine, found)
        shoot = await self.shoots.target(run.ref, run.recorder)
        source = ObjectRef(run.ref.cluster, SECRETS.id, plan.user_data.namespace, plan.user_data.name)
        where = f"Secret {source.namespace}/{source.name}"
        # The recorder never notes what the Secret holds.
        content = await run.recorder.secret(source, lambda data: manifests.user_data(data, where)) or b""

        async def asks_for_token() -> bool:
            return manifests.asks_for_token(content)

        asks = bool(await run.recorder.call("user data", None, asks_for_token))
        await claim(self.targets.own_cluster(run.run), run, plan.provider_id)
        if cloud:
            await self.clouds.reserve(run, found, cloud)
        if plan.never_created:
            return
        async with self.targets.provider(run.run, *plan.credentials) as provider:
            self.providers.note(run, plan.credentials, provider.cluster)
            target = dataclasses.replace(provider, manager=MANAGER)
            try:
                await self._create(run, plan, target, shoot if asks else None, content)
            except Missing as error:
                raise TransientError(
                    f"namespace {plan.namespace} is missing in the provider cluster: "
                    "its Infrastructure makes it"
                ) from error

    async def check_deletion(self, run: MachineRun) -> None:
        """Raise the error of a cloud that does not delete the machine now."""
        found = await _class(run)
        if cloud := self.clouds.cloud_of(found):
            await self.clouds.check_deletion(run, found, cloud)

    async def release(self, run: MachineRun) -> None:
        """Give back what a cloud has reserved for the Machine."""
        found = await _class(run)
        if cloud := self.clouds.cloud_of(found):
            await self.clouds.release(run, found, cloud)

    async def _create(
        self,
        run: MachineRun,
        plan: MachinePlan,
        target: TargetCluster,
        token_shoot: TargetCluster | None,
        content: bytes,
    ) -> None:
        """Create the objects. The bootstrap token is created in `token_shoot`, if there is one."""
        created: list[str | None] = []
        tokens: list[str] = []

        async def create_pod() -> None:
            manifest = manifests.pod(plan, docker_socket=self.settings.docker_socket)
            created.append(await target.create_if_absent(PODS, manifest))

        async def create_token() -> None:
            if token_shoot is not None:
                tokens.append(await self._token(run, token_shoot))

        await concurrently(create_pod(), create_token())
        filled = manifests.filled(content, plan.machine, tokens[0] if tokens else None)
        if (uid := created[0]) is not None:
            await concurrently(
                target.apply_secret(manifests.user_data_secret(plan, uid, filled)),
                target.apply(SERVICES, manifests.service(plan, uid)),
            )
            return
        # A Pod of this name exists: from an earlier attempt, or from before a restart or a migration.
        # A running machine is never changed, whatever program created it: only missing objects are added.
        pod = await target.live(PODS, plan.namespace, names.pod(plan.machine))
        if pod is None:
            raise Conflict(f"Pod {plan.namespace}/{names.pod(plan.machine)} has just gone")
        if not manifests.may_be_of(pod, run.ref):
            raise Refused(
                f"Pod {pod.namespace}/{pod.name} belongs to Machine {pod.annotations[manifests.OWNER]:.300}: "
                f"give MachineClass {machinespecs.class_name(run.machine)} another providerSpec.namespace, "
                "where no other control plane has its machines"
            )
        if pod.deleting:
            raise Waiting(f"waiting for the former Pod {pod.name} to be gone", retry_after=5.0)
        await target.apply(SERVICES, manifests.service(plan, pod.uid))
        if not await target.has_secret(plan.namespace, names.user_data(plan.machine)):
            await target.apply_secret(manifests.user_data_secret(plan, pod.uid, filled))

    async def _token(self, run: MachineRun, shoot: TargetCluster) -> str:
        """The Machine's bootstrap token: created by the first attempt, found by later ones."""
        expires = run.now + timedelta(seconds=machinespecs.timeouts(run.machine, self.settings).creation)
        found: list[str] = []

        async def create_token() -> str:
            api = await shoot.connection.api()
            for attempt in range(_TOKEN_ATTEMPTS):
                id, secret = names.token_id(run.machine.uid, attempt), manifests.new_secret()
                token = manifests.token_secret(run.ref.name, id, secret, expires)
                try:
                    await api.create(SECRETS, "kube-system", token)
                except Conflict:
                    there = await api.find(SECRETS, "kube-system", names.token(id))
                    if (known := manifests.secret_in(there, run.ref.name)) is None:
                        continue
                    secret = known
                found.append(f"{id}.{secret}")
                return names.token(id)
            raise TransientError("no free bootstrap token was found")

        # The answer is the name alone: recordings hold no secrets. In a replay nothing is found.
        await run.recorder.call("token", {"cluster": shoot.cluster}, create_token, effect=True)
        return found[0] if found else ""


async def _class(run: MachineRun) -> Object:
    name = machinespecs.class_name(run.machine)
    ref = ObjectRef(run.ref.cluster, MACHINE_CLASSES.id, run.ref.namespace, name)
    found = await run.recorder.read(ref)
    if found is None:
        raise Malformed(f"MachineClass {name} does not exist: create it, or correct spec.class.name")
    return found


async def claim(own: TargetCluster, run: MachineRun, provider_id: str) -> None:
    """Put finalizer, node and providerID on the Machine, before anything is created for it."""
    machine, pod = run.machine, names.pod(run.ref.name)
    metadata: dict[str, Any] = {}
    if machinekeys.FINALIZER not in machine.finalizers:
        metadata["finalizers"] = [*machine.finalizers, machinekeys.FINALIZER]
    if not machine.labels.get(machinekeys.NODE):
        metadata["labels"] = {machinekeys.NODE: pod}
    if not machine.annotations.get(machinekeys.PRIORITY):
        metadata["annotations"] = {machinekeys.PRIORITY: machinekeys.USUAL_PRIORITY}
    # MachineSets, which do not know the cloud, write the name of the Pod.
    spec = {"providerID": provider_id} if machine.spec.get("providerID") in (None, "", pod) else {}
    spec = {name: value for name, value in spec.items() if machine.spec.get(name) != value}
    if not metadata and not spec:
        # The bus may not show yet that the Machine was deleted. A write would conflict; here a read decides.
        live = await own.live(MACHINES, run.ref.namespace, run.ref.name)
        if live is None or live.uid != machine.uid or live.deleting:
            raise Conflict(f"Machine {run.ref.name} has changed meanwhile", retry_after=0.2)
        return
    head = {"uid": machine.uid, "resourceVersion": machine.resource_version}
    patch = {"metadata": {**head, **metadata}} | ({"spec": spec} if spec else {})

    async def patch_machine() -> str:
        api = await own.connection.api()
        return (await api.merge(MACHINES, run.ref.namespace, run.ref.name, patch)).resource_version

    version = await run.recorder.call("claim", patch, patch_machine, effect=True)
    # The next report is about this version.
    run.machine = Object(
        {**machine.raw, "metadata": {**machine.metadata, **metadata, "resourceVersion": version}}
    )
