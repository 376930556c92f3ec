"""Ray Tune as the scheduler of our lanes.

Its trials are handles in separate processes, whose requests arrive at the `desk`; `loop` steps the
lanes of all trials that asked, together. Rows, budget and policies are those of every study.
"""
