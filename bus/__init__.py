"""What is said between the processes, and how it is kept, queued and read again."""
