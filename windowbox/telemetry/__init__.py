"""What a process does comes in; logs, metrics, traces, and its state by HTTP go out."""
