"""What a cloud offers besides networks and machines: names, backups, volumes."""
