"""Files that are written completely or not at all, and the plain values they contain."""
