"""Checks for `windowbox doctor`: a sandbox or settings come in, findings with remedies go out."""
