"""As much of mlflow as its logger uses, in memory; `install` puts it in the package's place."""

import sys
from collections import namedtuple
from pathlib import Path
from types import ModuleType, SimpleNamespace

Metric = namedtuple("Metric", "key value timestamp step")
Param = namedtuple("Param", "key value")
RunTag = namedtuple("RunTag", "key value")
_servers = {}


class MlflowClient:
    def __init__(self, uri):
        self._runs = _servers.setdefault(uri, {})

    def get_experiment_by_name(self, name):
        return SimpleNamespace(experiment_id=f"id of {name}") if name in self._runs else None

    def create_experiment(self, name, artifacts):
        self._runs[name] = []
        return f"id of {name}"

    def create_run(self, experiment, tags, run_name):
        runs = self._runs[experiment.removeprefix("id of ")]
        info = SimpleNamespace(run_id=f"{run_name} {len(runs)}", run_name=run_name, status="")
        data = SimpleNamespace(params={}, metrics={}, tags=dict(tags))
        runs.append(SimpleNamespace(info=info, data=data, history=[], artifacts={}))
        return runs[-1]

    def search_runs(self, experiments, query=""):
        runs = self._runs[experiments[0].removeprefix("id of ")]
        return [one for one in runs if f"'{one.data.tags['hpo.run']}'" in query or not query]

    def get_run(self, run):
        (found,) = [one for runs in self._runs.values() for one in runs if one.info.run_id == run]
        return found

    def get_metric_history(self, run, key):
        return [one for one in self.get_run(run).history if one.key == key]

    def log_batch(self, run, metrics=(), params=(), tags=()):
        found = self.get_run(run)
        found.history += metrics
        for one in metrics:
            found.data.metrics[one.key] = one.value
        for one in params:
            assert found.data.params.setdefault(one.key, one.value) == one.value
        found.data.tags.update(tags)

    def set_tag(self, run, key, value):
        self.get_run(run).data.tags[key] = str(value)

    def log_dict(self, run, data, name):
        self.get_run(run).artifacts[name] = data

    def log_artifacts(self, run, folder, path):
        files = [one.name for one in Path(folder).iterdir()]
        self.get_run(run).artifacts |= {f"{path}/{name}": folder for name in files}

    def list_artifacts(self, run, path=None):
        names = self.get_run(run).artifacts
        return [SimpleNamespace(path=n) for n in names if n.startswith(path or "")]

    def update_run(self, run, status):
        self.get_run(run).info.status = status

    set_terminated = update_run


def install(patch):
    """Let `import mlflow` give this; `patch` is a MonkeyPatch."""
    package, entities = ModuleType("mlflow"), ModuleType("mlflow.entities")
    package.MlflowClient, package.is_tracking_uri_set = MlflowClient, lambda: False
    entities.Metric, entities.Param, entities.RunTag = Metric, Param, RunTag
    patch.setitem(sys.modules, "mlflow", package)
    patch.setitem(sys.modules, "mlflow.entities", entities)
