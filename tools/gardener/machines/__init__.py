"""Machines of a real Gardener: programs of this host come in, an image of a machine with systemd goes out."""
