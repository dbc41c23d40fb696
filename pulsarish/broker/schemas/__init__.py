"""The schemas of topics: their registry in metadata, and how topics use them."""
