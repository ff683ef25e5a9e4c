"""What all kinds of `extensions.gardener.cloud` share: when to run, what to do, what to report."""
