"""ControlPlanes come in; generated secrets, and a Shoot's ManagedResources of its provider go out."""
