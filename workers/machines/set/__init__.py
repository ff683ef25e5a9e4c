"""MachineSets keep as many Machines as they ask for."""
