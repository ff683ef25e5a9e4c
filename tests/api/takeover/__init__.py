"""Taking over from the Go program."""
