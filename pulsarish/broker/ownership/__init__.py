"""Ownership of bundles: which broker serves which bundle of topics, and how a bundle moves."""
