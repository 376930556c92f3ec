"""Files that a reader finds whole or not at all, and plain values in them."""
