"""A bookie's journal, which is synced before an add is answered, and its replay at start."""
