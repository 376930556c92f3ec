# The devices of jaxlib, which has no types: without them every function of jax that takes a device
# has a type that is partly unknown. tests/test_typings.py holds it against the package.
from typing import Any

class Client: ...

class Device:
    id: int
    platform: str
    device_kind: str
    process_index: int
    local_hardware_id: int | None
    client: Client
    def memory_stats(self) -> dict[str, Any] | None: ...
