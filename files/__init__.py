"""Files that are written completely or not at all, and plain values in them."""
