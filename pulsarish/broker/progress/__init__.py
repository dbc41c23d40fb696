"""Whether subscriptions and producers make progress, and if not, why."""
