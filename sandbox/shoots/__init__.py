"""Shoots of the sandbox: clusters of their own, whose nodes are machines in Pods of the sandbox's nodes."""
