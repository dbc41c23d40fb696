"""Entry logs: where a bookie keeps the entries of all its ledgers."""
