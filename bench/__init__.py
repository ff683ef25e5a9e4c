"""How fast it is: measured on real servers, each measurement in a sandbox of its own."""
