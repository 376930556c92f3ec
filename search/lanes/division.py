"""How the lanes of a population are divided into equal shares that stand for one population."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Division"]


@dataclass(frozen=True)
class Division:
    """How the lanes of a population are divided into equal shares.

    Attributes:
        total: lanes of the population, as one process would have them.
        tile: lanes that a device works on at a time.
        unit: lanes that are dealt to a share together, one after the other.
        own: lanes of the program of each share; those that are dealt nothing stay idle.
    """

    total: int
    tile: int
    unit: int
    own: int

    @classmethod
    def of(cls, total: int, shares: int, tile: int, devices: int) -> Division:
        """Divide lanes by whole tiles, by tiles of all devices at once where that comes out even.

        Args:
            total: a multiple of the tile.
            shares: how many.
            tile: lanes that a device works on at a time.
            devices: of each share.

        >>> Division.of(16, 2, 4, 2)
        Division(total=16, tile=4, unit=8, own=8)
        >>> Division.of(4, 2, 2, 2)
        Division(total=4, tile=2, unit=2, own=4)
        """
        block = tile * devices
        unit = tile if total % (shares * block) else block
        units = -(-total // (unit * shares))
        return cls(total, tile, unit, -(-units * unit // block) * block)
