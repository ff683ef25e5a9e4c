"""What is done about it: one package for each pool."""
