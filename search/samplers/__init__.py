"""Samplers, their contract, and the queue of proposals.

A sampler is a pure function of (batch number, history); `registry` has the contract and the names.
`proposal_queue` puts the default and the user's configurations first, redraws forbidden and known
ones, and draws the next batch in a thread while a chunk runs.
"""
