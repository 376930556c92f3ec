"""Waiting for the end of processes that are not children of the test."""

import time


def gone(process_ids, seconds=120.0):
    """Wait until none of some processes runs any more; a zombie has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(_runs(process_id) for process_id in process_ids):
            return True
        time.sleep(0.05)
    return False


def _runs(process_id):
    try:
        with open(f"/proc/{process_id}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
