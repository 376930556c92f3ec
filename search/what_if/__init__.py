"""What another rule would have done to a study: its recorded curves, judged again.

`record` reads them, `recorded_lanes` plays them to the engine in place of training, `replay` runs
the search over that, `resampled` says how much of it was luck, and `what_if` puts rules side by
side.
"""
