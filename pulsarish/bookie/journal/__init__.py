"""A bookie's journal: what is synced before an add is answered, and its replay at start."""
