"""The life cycle of all kinds of `extensions.gardener.cloud`: when to run, what to do, what to report."""
