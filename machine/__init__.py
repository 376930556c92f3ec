"""Access to the machine: devices, package versions, and worker processes for environments."""

if __name__ == "machine":
    raise ImportError("import hpo.machine instead, after `pip install -e .`")
