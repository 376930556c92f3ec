from collections.abc import Sequence
from typing import Any

class Expression:
    def __and__(self, other: Expression) -> Expression: ...
    def __eq__(self, other: object) -> Expression: ...  # type: ignore[override]
    def __ne__(self, other: object) -> Expression: ...  # type: ignore[override]
    def isin(self, values: Sequence[Any]) -> Expression: ...

def field(name: str) -> Expression: ...
