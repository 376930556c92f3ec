"""What a running study shows on a terminal, and how the terminal itself is handled.

run_view            the events of a run: as lines, or quiet
live_view           the same, drawn in place
progress_text       what they say
interrupt_listener  Ctrl-C while compiled code runs
console             the streams: tables that fit, keys, a terminal that was closed
"""
