"""The DNSRecord kind: what a record ought to be, and how it comes about."""
