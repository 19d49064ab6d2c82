"""Memory: bytes, addresses, lifetimes and order.  It knows no time."""
