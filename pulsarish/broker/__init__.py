"""The broker: serves the topics of the bundles it owns; holds nothing that cannot be lost."""
