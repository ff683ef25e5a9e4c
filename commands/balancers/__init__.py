"""`windowbox lb`: the bus and the edge controller come in; text, JSON and a drain annotation go out."""
