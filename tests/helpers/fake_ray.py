"""The part of Ray that processes of a command use: actors as threads, whose processes are real.

An actor waits for `cpus` and `gpus` of one node. `die` ends an actor and its process as the death
of its worker does.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace

from hpo.machine import guard


class RayError(Exception):
    pass


class RayActorError(RayError):
    pass


class RaySystemError(RayError):
    pass


class Unused(RayError):
    pass


class Method:
    def __init__(self, actor, name):
        self._actor, self._name = actor, name

    def remote(self, *words):
        return self._actor.call(self._name, words)


class Actor:
    def __init__(self, cluster, made, resources):
        self._cluster, self._made, self.resources = cluster, made, resources
        self._threads = ThreadPoolExecutor(resources["max_concurrency"])
        self.references, self.folders = [], []
        self.dead, self.placed = False, threading.Event()
        self._threads.submit(self._place)

    def __getattr__(self, name):
        return Method(self, name)

    def _place(self):
        while not self.dead and not self._cluster.take(self.resources):
            time.sleep(0.005)
        self.placed.set()

    def call(self, name, words):
        found = Future()
        self.references.append(found)
        if name == "run":
            self.folders.append(words[-1].folder)
        if self.dead:
            found.set_exception(RayActorError("The actor died unexpectedly"))
        else:
            self._threads.submit(self._answer, found, name, words)
        return found

    def _answer(self, found, name, words):
        self.placed.wait()
        if self.dead:
            return
        result = getattr(self._made, name)(*words)
        if not found.done():
            found.set_result(result)

    def die(self):
        if self.dead:
            return
        self.dead = True
        if self.placed.is_set():
            self._cluster.give_back(self.resources)
        self.placed.set()
        for reference in self.references:
            if not reference.done():
                reference.set_exception(RayActorError("The actor died unexpectedly"))
        for folder in self.folders:
            for process in guard.marked(f"HPO_FOLDER={folder}\0"):
                os.kill(process, signal.SIGKILL)
        self._threads.shutdown(wait=False)


class FakeRay:
    """Stands in for the module `ray`."""

    exceptions = SimpleNamespace(
        RayError=RayError,
        RayActorError=RayActorError,
        RaySystemError=RaySystemError,
        OutOfMemoryError=Unused,
        ObjectLostError=Unused,
        LocalRayletDiedError=Unused,
    )

    def __init__(self, cpus=4, gpus=0):
        self._total = {"CPU": cpus, "GPU": gpus}
        self._free, self._lock = dict(self._total), threading.Lock()
        self.actors = []

    def take(self, resources):
        with self._lock:
            asked = {"CPU": resources["num_cpus"], "GPU": resources["num_gpus"]}
            if any(asked[name] > self._free[name] for name in asked):
                return False
            self._free = {name: self._free[name] - asked[name] for name in asked}
            return True

    def give_back(self, resources):
        with self._lock:
            self._free["CPU"] += resources["num_cpus"]
            self._free["GPU"] += resources["num_gpus"]

    def cluster_resources(self):
        return self._total

    def nodes(self):
        return [{"Alive": True, "Resources": self._total}]

    def remote(self, made):
        def options(**how):
            return SimpleNamespace(remote=lambda: self._start(made(), how))

        return SimpleNamespace(options=options)

    def _start(self, made, how):
        actor = Actor(self, made, how)
        self.actors.append(actor)
        return actor

    def wait(self, references, timeout):
        assert timeout == 0
        ready = [one for one in references if one.done()]
        return ready, [one for one in references if not one.done()]

    def get(self, reference):
        return reference.result(timeout=60)

    def kill(self, actor):
        actor.die()
