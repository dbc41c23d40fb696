"""What both transports share: addresses, limits, and how handlers are run."""
