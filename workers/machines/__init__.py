"""What the pools of machine objects share."""
