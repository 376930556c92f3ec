"""Who proposes: the methods of search, their contract, and the queue of proposals.

A sampler is a pure function of (batch number, history): `contract` says of what, `registry`
knows the methods by name and imports each only when a study asks for it. `proposer` puts the
default configuration and what the user enqueued before it and draws again what is forbidden or
known; `ask_ahead` draws the next batch in a thread while a chunk runs.
"""
