"""What makes and measures windowbox, from a checkout: chart, release, benchmarks. In no wheel."""
