"""Models: plain values without I/O."""
