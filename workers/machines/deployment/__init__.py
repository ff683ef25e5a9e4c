"""MachineDeployments replace and scale Machines through MachineSets."""
