"""A bookie: stores entries of ledgers, durably, and knows nothing of topics."""
