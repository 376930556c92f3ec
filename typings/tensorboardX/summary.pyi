from collections.abc import Mapping

class Summary: ...

def hparams(
    hparam_dict: Mapping[str, bool | float | str], metric_dict: Mapping[str, float]
) -> tuple[Summary, Summary, Summary]: ...
