"""The bus alone: empty runs through the work queue, and requests beside nats-py. Figures come out."""
