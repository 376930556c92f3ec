"""An environment that gets into trouble when it is told to; imported by its name, by workers too.

Its walk depends on its seed and actions alone, unless it is `wayward`.
"""

import os
import signal
import time

import gymnasium
import numpy as np

from hpo.machine.worker import serve

__all__ = ["serve"]

LENGTH = 9


class Troubled(gymnasium.Env):
    """At step `at` of an episode `how` happens; only once in all if there is a `once` file."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, how: str = "", at: int = 5, once: str = "", wayward: bool = False):
        self.how, self.at, self.once, self.wayward = how, at, once, wayward
        if how == "refuse" and os.path.exists(once):
            raise ValueError("no second time")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.place = 0, self.np_random.normal()
        return self._seen(), {}

    def step(self, action):
        self.time += 1
        self.place += (2 * action - 1) * self.np_random.random()
        if self.time == self.at:
            self._trouble()
        return self._seen(), self.place, abs(self.place) > 2.0, self.time >= LENGTH, {}

    def _seen(self):
        noise = float.fromhex(os.urandom(4).hex()) if self.wayward else 0.0
        return np.array([self.time, self.place + noise])

    def _trouble(self):
        if not self.how or (self.once and os.path.exists(self.once)):
            return
        if self.once:
            open(self.once, "w").close()
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.how == "exit":
            os._exit(3)
        elif self.how == "hang":
            time.sleep(3600)
        elif self.how == "raise":
            raise ValueError("a broken joint")
        elif self.how == "interrupt":
            raise KeyboardInterrupt
        elif self.how == "leave":
            raise SystemExit(3)


gymnasium.register("hpo-test/Troubled-v0", entry_point=Troubled)
