"""Break a running cluster of real processes, and check that it keeps its promises."""
