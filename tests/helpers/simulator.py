"""A slow optical-network simulator, written from the description with loops over slots and links.

It shares the path tables with the compiled environments and nothing else: services are a list with
absolute integer times, the spectrum is a plain grid that is rebuilt from that list.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np


@dataclass
class Service:
    end: int
    links: list[int]
    slots: range
    bitrate: float
    path: tuple[int, int]


@dataclass
class SlowNetwork:
    """`tables` needs .paths (a PathTable), .topology; the rest are plain numbers."""

    tables: object
    kind: str
    slots: int
    width: float
    guardband: int
    aggregate: int = 1
    no_op: bool = False
    services_end: bool = True
    fits: tuple = ("first",)
    now: int = 0
    services: list[Service] = field(default_factory=list)

    def __post_init__(self):
        self.paths = self.tables.paths
        self.k = self.paths.hop_counts.shape[1]
        self.kms = [link[2] for link in self.tables.topology.links]
        self.forget()

    def forget(self):
        self.services, self.now = [], 0
        self.grid = np.zeros((len(self.kms), self.slots), bool)
        self.gaps = {}

    def rebuild(self):
        self.grid[:] = False
        self.gaps = {}
        for service in self.services:
            for link in service.links:
                self.grid[link, service.slots] = True

    # What the request could use

    def ask(self, pair: int, bitrate: float):
        self.pair, self.bitrate = pair, bitrate
        self.links, self.need, self.valid = [], [], []
        for rank in range(self.k):
            nodes = self.paths.nodes[pair][rank] if rank < len(self.paths.nodes[pair]) else ()
            hops = list(pairwise(nodes))
            links = [self.tables.topology.link_index[hop] for hop in hops]
            efficiency = self.paths.efficiency[pair, rank]
            need = math.ceil(bitrate / (efficiency * self.width) + self.guardband)
            if self.kind == "rwa_lightpath_reuse":
                need = 1
            self.links.append(links)
            self.need.append(need)
            meets = [s for s in self.services if set(s.links) & set(links)]
            self.valid.append([self.possible(rank, start, meets) for start in range(self.slots)])
        self.first = [next((s for s, ok in enumerate(v) if ok), None) for v in self.valid]

    def possible(self, rank: int, start: int, meets: list[Service]) -> bool:
        """Whether it fits there; `meets` are the services on links of the path."""
        links, need = self.links[rank], self.need[rank]
        if not links or start + need > self.slots:
            return False
        if self.kind == "rwa_lightpath_reuse":
            capacity = self.paths.capacity[self.pair, rank]
            here = [s for s in meets if start in s.slots]
            if any(s.path != (self.pair, rank) for s in here):
                return False
            return sum(s.bitrate for s in here) + self.bitrate <= capacity
        return all(not self.grid[link, start : start + need].any() for link in links)

    def mask(self) -> list[bool]:
        if self.kind == "deeprmsa":
            room = [any(valid) for valid in self.valid]
            room = room if any(room) else [True] * self.k
            return [able for able in room for _ in self.fits]
        mask = []
        for valid in self.valid:
            for block in range(0, self.slots, self.aggregate):
                mask.append(any(valid[block : block + self.aggregate]))
        return mask + ([True] if self.no_op else [])

    def decode(self, action: int) -> tuple[int, int]:
        if self.kind == "deeprmsa":
            path, number = divmod(action, len(self.fits))
            return path, self.fit(path, self.fits[number])
        blocks = math.ceil(self.slots / self.aggregate)
        path, block = divmod(action, blocks)
        begin = block * self.aggregate
        if path < self.k:
            for start in range(begin, min(begin + self.aggregate, self.slots)):
                if self.valid[path][start]:
                    return path, start
        return path, begin

    def fit(self, path: int, name: str) -> int:
        """Where on a path a service starts, 0 where it has no room."""
        starts = [slot for slot in range(self.slots) if self.valid[path][slot]]
        if not starts:
            return 0
        if name == "best":
            return min(starts, key=lambda slot: (self.surplus(path, slot), slot))
        if name == "exact":
            for slot in starts:
                end = slot + self.need[path]
                if not self.open(path, slot - 1) and not self.open(path, end):
                    return slot
        return starts[-1] if name == "last" else starts[0]

    def open(self, path: int, slot: int) -> bool:
        """Whether a slot exists and is free on the whole path."""
        inside = 0 <= slot < self.slots
        return inside and not any(self.grid[link, slot] for link in self.links[path])

    def serve(self, path: int, start: int, holding: int, wait: int) -> bool:
        accepted = path < self.k and self.valid[path][start]
        if accepted:
            slots = range(start, start + self.need[path])
            end = self.now + holding
            service = Service(end, self.links[path], slots, self.bitrate, (self.pair, path))
            self.services.append(service)
        self.now += wait
        if self.services_end:
            self.services = [s for s in self.services if s.end > self.now]
        self.rebuild()
        return accepted

    # What heuristics look at

    def blocks(self, link: int, extra: range = range(0)) -> list[tuple[int, int]]:
        """(start, size) of the free blocks of a link, with some slots taken in addition."""
        if (link, extra) in self.gaps:  # nothing has changed since
            return self.gaps[link, extra]
        blocks, begin = [], None
        for slot, used in enumerate([*self.grid[link].tolist(), True]):
            taken = used or slot in extra
            if taken and begin is not None:
                blocks.append((begin, slot - begin))
            begin = None if taken else (slot if begin is None else begin)
        self.gaps[link, extra] = blocks
        return blocks

    def surplus(self, rank: int, start: int) -> int:
        total = 0
        for link in self.links[rank]:
            for begin, size in self.blocks(link):
                if begin <= start < begin + size:
                    total += size - self.need[rank]
        return total

    def usage(self, slot: int) -> int:
        return int(self.grid[:, slot].sum())

    def entropy(self, blocks: list[tuple[int, int]]) -> int:
        shares = [size / self.slots for _, size in blocks]
        return sum(round(share * math.log(1 / share) * 2**20) for share in shares)

    def cuts(self, rank: int, start: int) -> int:
        window, total = range(start, start + self.need[rank]), 0
        for link in self.links[rank]:
            total += len(self.blocks(link, window)) - len(self.blocks(link))
        return total

    def left_fragments(self, rank: int, start: int) -> int:
        total = 0
        for link in self.links[rank]:
            if not self.grid[link, start]:
                slot = start
                while slot > 0 and not self.grid[link, slot - 1]:
                    slot, total = slot - 1, total + 1
        return total

    def entropy_after(self, rank: int, start: int) -> int:
        window = range(start, start + self.need[rank])
        return sum(self.entropy(self.blocks(link, window)) for link in self.links[rank])

    def congestion(self, rank: int) -> int:
        total = 0
        for link in self.links[rank]:
            taken = int(self.grid[link].sum())
            total += round(self.kms[link] * 16) * (self.slots + 1) // (self.slots + 1 - taken)
        return total

    def choose(self, name: str) -> tuple[int, int]:
        """(path, start) of a heuristic, (0, 0) where nothing fits."""
        able = [p for p in range(self.k) if self.first[p] is not None]
        if not able:
            return 0, 0
        starts = {p: [s for s in range(self.slots) if self.valid[p][s]] for p in able}
        if name == "ksp_ff":
            return able[0], starts[able[0]][0]
        if name == "ksp_lf":
            return able[0], starts[able[0]][-1]
        if name == "ff_ksp":
            path = min(able, key=lambda p: (self.first[p], p))
            return path, self.first[path]
        if name == "ksp_bf":
            return able[0], min(starts[able[0]], key=lambda s: (self.surplus(able[0], s), s))
        if name == "bf_ksp":
            every = [(p, s) for p in able for s in starts[p]]
            return min(every, key=lambda c: (self.surplus(*c) / len(self.links[c[0]]), c))
        if name == "ksp_mu":
            return able[0], min(starts[able[0]], key=lambda s: (-self.usage(s), s))
        if name == "mu_ksp":
            every = [(p, s) for p in able for s in starts[p]]
            return min(every, key=lambda c: (-self.usage(c[1]), c))
        costs = {
            "kca_ff": lambda p: self.congestion(p),
            "kmc_ff": lambda p: self.cuts(p, self.first[p]),
            "kmf_ff": lambda p: self.left_fragments(p, self.first[p]),
            "kme_ff": lambda p: self.entropy_after(p, self.first[p]),
        }
        path = min(able, key=lambda p: (costs[name](p), p))
        return path, self.first[path]
