"""Which broker serves which bundle of topics, and how that changes hands."""
