"""Memory that this process shares with its workers."""

from __future__ import annotations

import mmap
import os
import tempfile

__all__ = ["received_block", "shared_block"]


def shared_block(size: int) -> tuple[int, memoryview]:
    """Return a file descriptor and memory of zeros that belong to no name.

    Whoever receives the descriptor shares it; it is gone with the last process that has it.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("hpo-environments")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor, memoryview(mmap.mmap(descriptor, size))


def received_block(descriptor: int, size: int) -> memoryview:
    """Return the memory of a descriptor from another process, which is closed."""
    memory = mmap.mmap(descriptor, size)
    os.close(descriptor)
    return memoryview(memory)
