"""How long a study takes on this machine, before it runs.

`expected_work` counts what there is to do, `program_timing` times some chunks of its programs,
`timing_cache` keeps timings, and `forecast` puts them together, by phase and with an interval.
"""
