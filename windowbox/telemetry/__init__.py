"""Logs, metrics, traces and stalls of a process, and the HTTP server that shows its state."""
