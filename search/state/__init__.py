"""The state of a study in memory: ledger, trials, buckets, schedules, budget, progress."""
