"""A relay for clients that can reach one address only: lookups are answered here, and connections passed on to the brokers they name."""
