"""What is reported: status, written to the cluster."""
