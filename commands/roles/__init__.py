"""What the processes of each role run. Each role is a module, so that it imports no more than it takes."""
