"""`python -m windowbox` is `windowbox`."""

from windowbox.cli import main

main()
