"""ControlPlanes: generated secrets, and what a Shoot gets from its provider as ManagedResources."""
