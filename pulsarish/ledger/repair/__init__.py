"""Repair of ledgers: find missing copies, copy entries, and prove what is lost."""
