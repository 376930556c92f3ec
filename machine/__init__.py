"""The machine: devices, package versions, and worker processes for environments."""
