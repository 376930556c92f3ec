"""The verbs of the command line.

`hpo.cli` calls `do_VERB(args)` of the module in its table, and imports nothing else. A verb
returns its exit code, raises `HpoError` for a user's mistake, and prints results alone on stdout.
"""
