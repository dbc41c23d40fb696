"""A bookie stores entries of ledgers durably. It does not know topics."""
