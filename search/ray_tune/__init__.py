"""Ray Tune as the scheduler of our lanes.

Its trials are handles in processes of their own; what they ask for arrives at the desk of
`contract`, and `loop` steps the lanes of all trials that asked, together. Rows, budget and
policies are every study's.
"""
