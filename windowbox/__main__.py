"""`python -m windowbox` is `windowbox`."""

from commands.cli import main

main()
