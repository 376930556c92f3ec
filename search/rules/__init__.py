"""The rules that judge trials at a rung: stop, pause, or copy another trial."""
