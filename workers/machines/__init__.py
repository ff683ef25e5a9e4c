"""Shared by the pools machine, machineset and machinedeployment: templates, names, the Lease, views.

Each folder is one pool: a Worker creates MachineDeployments, these create MachineSets, these create Machines.
"""
