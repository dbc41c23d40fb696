"""The broker: serves the topics of the bundles it owns. It holds nothing that cannot be lost."""
