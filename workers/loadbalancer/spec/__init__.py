"""What a Service asks for, as pure functions. In: a Service. Out: a `Demand`, its listeners, and refusals."""
