"""Labels, annotations, finalizers and taints that the controllers of machines share.

Their names are Gardener's: cluster-autoscaler, gardenlet and the node agent read and write them too.
"""

from __future__ import annotations

_MACHINE = "machine.sapcloud.io"
_NODE = f"node.{_MACHINE}"

# Finalizers.
FINALIZER = f"{_MACHINE}/machine-controller-manager"
"""On Machines, MachineClasses, MachineSets and MachineDeployments."""
SECRET_FINALIZER = f"{_MACHINE}/machine-controller"
"""On Secrets that a MachineClass refers to."""
NODE_FINALIZER = f"{_NODE}/machine-controller"

# Labels.
DEPLOYMENT = "name"
"""On MachineSets and Machines: the name of their MachineDeployment."""
NODE = "node"
"""On a Machine: the name of its node."""
TEMPLATE_HASH = "machine-template-hash"
FORCE_DELETION = "force-deletion"
FORCE_DRAIN = "force-drain"
FREEZE = "freeze"
SCALE_UP_DISABLED = f"{_NODE}/scale-up-disabled"
POOL = "worker.gardener.cloud/pool"
WORKER = "worker.gardener.cloud/name"
PURPOSE = "gardener.cloud/purpose"
"""On the Secret of a MachineClass, with the value CLASS_SECRET."""
CLASS_SECRET = "machineclass"
NODE_MACHINE = "node.gardener.cloud/machine-name"
"""On a node: the name of its Machine."""
CANDIDATE = f"{_NODE}/candidate-for-update"
SELECTED = f"{_NODE}/selected-for-update"
UPDATE_RESULT = f"{_NODE}/update-result"
SUCCESSFUL, FAILED = "successful", "failed"
"""Its values."""

# Annotations.
PRIORITY = f"machinepriority.{_MACHINE}"
USUAL_PRIORITY = "3"
"""On a Machine: the lower, the earlier it goes when a set shrinks."""
MARKED_FOR_DELETION = f"{_MACHINE}/marked-for-deletion-time"
TRIGGER_DELETION = f"{_NODE}/trigger-deletion-by-mcm"
SCALER_TIME = f"{_MACHINE}/last-deployment-replica-change-by-scaler-time"
REVISION = "deployment.kubernetes.io/revision"
REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED_REPLICAS = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS = "deployment.kubernetes.io/max-replicas"
PREFER_NO_SCHEDULE = "deployment.machine.sapcloud.io/prefer-no-schedule"
"""On MachineSets whose nodes have the taint of the same name."""
UNFREEZE = "safety.machine.sapcloud.io/unfreeze"
PRESERVE = f"{_NODE}/preserve"
LAST_PRESERVE = f"{_NODE}/last-applied-node-preserve-value"
NOT_MANAGED = f"{_NODE}/not-managed-by-mcm"
LAST_APPLIED = f"{_NODE}/last-applied-anno-labels-taints"
CAPACITY = "machine.windowbox/capacity"
"""On nodes of clouds: the CPU and memory of their instance, as JSON."""
LAST_VIRTUAL_CAPACITY = f"{_NODE}/last-applied-virtual-capacity"
UPDATE_FAILED_REASON = f"{_NODE}/update-failed-reason"
SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
SCALE_DOWN_DISABLED_BY_US = f"{SCALE_DOWN_DISABLED}-by-mcm"

# Taints.
CRITICAL_COMPONENTS = "node.gardener.cloud/critical-components-not-ready"
PRESERVED = f"{_NODE}/preserved"
