"""`windowbox shoot`: clusters whose nodes are machines of the sandbox."""
