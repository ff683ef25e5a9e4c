"""Real servers as child processes of this machine, for developers, tests and the demo."""
