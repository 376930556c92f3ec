"""The loop and the steps of its boundaries: what happens between two chunks, in which order.

`loop` has the order; each step is a module of its own and reads and writes the ledger of
`search.state`. The table in docs/search.md names them all.
"""
