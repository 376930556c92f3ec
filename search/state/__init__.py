"""The state of a study in memory: search state, trials, buckets, schedules, budget, progress."""
