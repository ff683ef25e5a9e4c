"""`windowbox resolver`: the command, and the files of the host that it writes."""
