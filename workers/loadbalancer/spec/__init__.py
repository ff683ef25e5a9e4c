"""The demand of a Service, as pure functions. In: a Service. Out: a `Demand`, its listeners, and refusals."""
