"""The state of a study in memory: trials, buckets, schedules, budget, progress."""
