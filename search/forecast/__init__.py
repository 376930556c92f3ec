"""How long a study takes on this machine, before it runs.

rehearsal   the search itself, over lanes that only count: how much there is to do
timed       some chunks of its programs: how long that takes
kept        timings of programs on this machine, for next time
forecast    both together, by phase, with an interval and what it rests on
"""
