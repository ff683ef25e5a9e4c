"""Tools of a checkout: chart, release, benchmarks and measures of the code. In no wheel."""
