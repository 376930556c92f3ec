"""Rules that judge trials at a rung: stop a trial, pause it, or let it copy another."""
