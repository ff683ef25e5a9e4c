"""What an operator sets in the accounts of a cloud: objects that exist, and calls that fail."""
