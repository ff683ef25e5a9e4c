"""What all clouds share: decoding, CIDR arithmetic, zones, images, secrets. Knows no cloud."""
