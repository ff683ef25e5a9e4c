"""The commands of `windowbox`, one module for each group."""
