"""What the processes say about themselves: logs, metrics, traces."""
