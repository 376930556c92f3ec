"""What a study knows, and what it must not forget.

The `ledger` holds the trials in memory, the `LoopState` (everything in motion, as JSON text in
the store) and the rows that are not committed yet. Beside it: buckets and their lanes,
schedules, budgets, objectives, lineages.
"""
