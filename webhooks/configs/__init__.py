"""Edits texts that programs on nodes read: component configurations in YAML, and unit files of systemd."""
