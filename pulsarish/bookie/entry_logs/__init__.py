"""Entry logs, in which a bookie keeps the entries of all its ledgers."""
