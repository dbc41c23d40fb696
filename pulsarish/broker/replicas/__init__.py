"""Read replicas: topics of other brokers, served to readers here."""
