"""Who stops, and who copies whom: the rules that judge trials at a rung.

A rule is a pure function of what stands at the rung and what stood there before (`verdict`);
`registry` knows them by name. `explore` and `pb2` say how the knobs of a copy change in a
population that evolves.
"""
