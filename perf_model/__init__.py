"""Performance: work and time.  It knows no values of bytes."""
