"""The HTTP face: Apache Pulsar's admin paths, lookup, health and metrics."""
