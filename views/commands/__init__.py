"""The commands of the command line.

`hpo.cli` calls `do_VERB(args)` in the module given in its table, and imports nothing else. A
command returns its exit code, raises `HpoError` for a user's mistake, and prints only results on
stdout.
"""
