"""The nouns: plain values, no I/O."""
