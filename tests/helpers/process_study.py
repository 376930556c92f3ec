"""A script that behaves well or badly, and studies of it: for tests of processes anywhere."""

import sys
import time

from hpo.machine import guard
from hpo.store.journal import Journal
from hpo.studies.load import load

SCRIPT = """
import json, os, signal, subprocess, sys, time

how, rate, seed, steps, folder = sys.argv[1:6]
rate, seed, steps = float(rate), int(seed), int(steps)

def say(step, **numbers):
    print(json.dumps({"step": step, **numbers}), flush=True)

def wait():
    while True:
        time.sleep(0.01)

if how == "silent":
    sys.exit(0)
if how == "other":
    say(steps, los=1.0)
    sys.exit(0)
if how == "stepless":
    print("a line for people")
    print(json.dumps({"score": rate, "nested": {"loss": 2.0}}))
    sys.exit(0)
start = 0
checkpoint = os.path.join(folder, "checkpoint")
if how == "resumes" and "--load" in sys.argv:
    start = int(open(checkpoint).read())
for part in range(start + 1, 9):
    say(part * steps // 8, score=rate * part + seed % 10 / 100, loss=1.0 / part)
    if how == "resumes":
        open(checkpoint, "w").write(str(part))
        time.sleep(0.1)
    if how == "slow":
        time.sleep(0.03)
    if part == 2:
        if how == "crash":
            raise RuntimeError("out of memory")
        if how == "code":
            print("a last word")
            sys.exit(3)
        if how == "short":
            sys.exit(0)
        if how == "nan":
            say(steps // 2, score=float("nan"))
            wait()
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "hang":
            wait()
        if how == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            wait()
        if how in ("forks", "forks and crashes"):
            sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
            subprocess.Popen(sleep)
            subprocess.Popen(sleep, start_new_session=True)
            if how == "forks and crashes":
                sys.exit(1)
"""
STUDY = """
command: {python} script.py {{how}} {{rate}} {{seed}} {{env_steps}} {{folder}}
length: 800
space:
  rate: {{min: 1.0, max: 9.0}}
fixed: {{how: {how}}}
search: {{method: random}}
budget: {{trials: {trials}}}
metric: {{name: score}}
processes: {{at_once: 2, timeout: {timeout}, grace: 0.2s}}
"""


def write_script(folder):
    (folder / "script.py").write_text(SCRIPT)


def study_of(folder, how="plain", trials=3, more="", **changes):
    timeout = "1s" if how in ("hang", "deaf") else "60s"  # a busy machine is not a hang
    text = STUDY.format(python=sys.executable, how=how, trials=trials, timeout=timeout) + more
    for old, new in changes.items():
        text = text.replace(old, new)
    (folder / "study.yaml").write_text(text)
    return load(folder / "study.yaml")


def alive(folder):
    """Return processes that a study in this folder has started, once killed ones are gone."""
    end = time.monotonic() + 30
    while (found := guard.marked(f"HPO_FOLDER={folder}")) and time.monotonic() < end:
        time.sleep(0.01)
    return found


def rows_of(results):
    with Journal(results.folder) as journal:
        return journal.trials(), list(journal.evaluations())
