"""What is foretold of a demo, from facts."""
