"""Populations whose lanes live elsewhere: equal shares on the workers of a Ray cluster.

`executors` chooses between this machine and a cluster, `shares` makes one population of its
shares and replaces a worker that died, `share_host` is what runs on a worker; `via_ray` alone
knows Ray.
"""
