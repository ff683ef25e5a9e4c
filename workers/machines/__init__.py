"""Shared by the pools machine, machineset and machinedeployment: templates, names, the Lease, views."""
