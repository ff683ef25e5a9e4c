"""Models: JSON of the APIs comes in; frozen, validated values go out. No I/O."""
