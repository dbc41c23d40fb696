"""The schemas of topics: their registry in metadata, and what topics make of them."""
