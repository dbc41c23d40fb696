"""Who a caller is: credentials, certificates, identities, and the providers that check them."""
