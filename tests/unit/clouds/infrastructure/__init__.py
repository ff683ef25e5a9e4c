"""Plans of Infrastructures: their objects, statuses and states."""
