"""Lanes in shares whose hosts die: the bits are those of one population that nobody disturbed."""

import dataclasses
import random
from functools import partial

import numpy as np
import pytest

from helpers import search_samples as samples
from helpers.analytic_lanes import AnalyticShares, analytic_shares
from hpo.errors import ConfigError, SearchError, StoreError
from hpo.search.cluster.executors import SharedFactory
from hpo.search.cluster.via_ray import _machine_differences
from hpo.search.cluster.worker_shards import (
    Lost,
    Machine,
    SharedPopulation,
    ShareHost,
    WorkerError,
    pack,
    unpack,
)
from hpo.search.lanes.contract import LaneChange, Refill
from hpo.search.lanes.lane_count import Division
from hpo.search.lanes.local import LocalFactory
from hpo.search.run import run
from hpo.search.study_estimate import preview
from hpo.store import Stream, tables_equal
from hpo.store.journal import Journal
from hpo.studies.execution_spec import Budget
from hpo.studies.load import loads
from hpo.studies.search_spec import Confirm, EarlyTerminate

pytestmark = pytest.mark.slow

FACTORY = samples.AnalyticFactory(
    rows=2, lanes=12, block=2, quanta={"16": 500, "32": 1_000, "64x64": 2_000}, diverges_above=0.3
)
SEARCH = Stream.SEARCH
CONFIG = {"learning_rate": 1e-3, "gamma": 0.99, "hidden_sizes": [32]}


def configured(factory, **knobs):
    return factory.resolve({**CONFIG, **knobs})


def made(factory, lanes=12):
    """A population, and the configuration that it was made for."""
    resolved = configured(factory)
    return factory.make(resolved, lanes), resolved


class FakeTeam:
    """Hosts in this process; `dies(share, method, number)` says whether the host of a call dies,
    before or (`late`) after it has done what it was told."""

    def __init__(
        self, factory=FACTORY, shares=3, dies=lambda share, method, number: "", machines=2
    ):
        self.shares, self.dies, self._machines = shares, dies, machines
        self._source = partial(analytic_shares, factory, shares)
        self.hosts = [self._new() for _ in range(shares)]
        self.generations, self.calls, self.deaths = [0] * shares, [], 0

    def _new(self):
        host = ShareHost(self._source)
        host.do(0, "begin", (1,))
        return host

    def generation(self, share):
        return self.generations[share]

    def call(self, calls):
        return {share: self._one(share, *call) for share, call in calls.items()}

    def _one(self, share, method, args):
        self.calls.append((share, method))
        fate = self.dies(share, method, len(self.calls))
        if fate == "late":
            self.hosts[share].do(share, method, args)
        if fate:
            self.deaths += 1
            self.hosts[share] = None
            return Lost("it was killed")
        if self.hosts[share] is None:
            return Lost("it is dead")
        return self.hosts[share].do(share, method, args).answer

    def replace(self, share):
        self.generations[share] += 1
        self.hosts[share] = self._new()

    def first_of_machines(self):
        return list(range(self._machines))


def factory_over(team):
    return SharedFactory(team, AnalyticShares(FACTORY, team.shares).machine)


ATTEMPTS = 30
"""Workers that may die one after the other where they die by chance."""


def at_random(seed):
    """Deaths by chance, fewer than `ATTEMPTS`: each brings the calls since the last commit again,
    as many as the machine is fast, and among those others may die."""
    rng, left = random.Random(seed), iter(range(ATTEMPTS - 1))

    def dies(*_):
        fate = rng.choice(["early", "late"]) if rng.random() < 0.04 else ""
        return fate if fate and next(left, None) is not None else ""

    return dies


STUDIES = {
    "asha with buckets": samples.study(samples.WITH_BUCKETS, confirm=Confirm(2, 2, 3)),
    "pbt": samples.study(
        early_terminate=EarlyTerminate("pbt", every=2_000), budget=Budget(trials=6)
    ),
    "asha with joined rows": samples.study(log_every=3_000),
}


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("seed", range(2))
def test_tables_with_dying_workers_equal_single_process(tmp_path, monkeypatch, name, seed):
    monkeypatch.setattr("hpo.search.cluster.worker_shards._ATTEMPTS", ATTEMPTS)
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    run(STUDIES[name], alone, FACTORY, (), samples.quick())
    team = FakeTeam(dies=at_random(f"{name}{seed}"))
    factory = factory_over(team)
    result = run(STUDIES[name], shared, factory, (), samples.quick(commit_seconds=0.05))
    assert result.state == "finished" and result.usage.failures == 0
    assert team.deaths >= 1
    assert tables_equal(alone, shared) == []


class Failing(samples.AnalyticFactory):
    """The environment of every share's own lane 1 fails."""

    def make(self, resolved, lanes):
        made = super().make(resolved, lanes)
        good = made.advance

        def advance(refills, busy):
            return dataclasses.replace(good(refills, busy), failed={1: f"one of {len(busy)}"})

        made.advance = advance
        return made


def test_failed_lanes_of_workers_are_reported_by_global_number():
    factory = Failing(lanes=12, block=2, quanta={"32": 1_000})
    shared, resolved = made(factory_over(FakeTeam(factory)))
    refills = [Refill(lane, resolved, SEARCH, lane) for lane in range(12)]
    found = shared.advance(refills, range(12))
    assert found.failed == {1: "one of 4", 3: "one of 4", 5: "one of 4"}


def test_lanes_are_split_by_block_and_results_keep_their_order():
    team = FakeTeam()
    factory = factory_over(team)
    shared, alone = made(factory)[0], made(FACTORY)[0]
    assert (shared.lanes, shared.block) == (12, 2)
    lanes = [0, 1, 2, 7, 11]
    seen = {}
    for population, maker in ((shared, factory), (alone, FACTORY)):
        refills = [
            Refill(lane, configured(maker, learning_rate=1e-3 * (lane + 1)), SEARCH, lane)
            for lane in lanes
        ]
        chunks = [population.advance(refills, lanes), population.advance([], lanes)]
        seen[population] = (chunks, population.evaluate([11, 0, 7]))
    for ours, theirs in zip(seen[shared][0], seen[alone][0], strict=True):
        assert list(ours.metrics) == list(theirs.metrics)
        for name, values in ours.metrics.items():
            np.testing.assert_array_equal(values[lanes], theirs.metrics[name][lanes])
        np.testing.assert_array_equal(ours.diverged, theirs.diverged)
        assert [row.env_steps for row in ours.rows] == [500, 1_000]
        for one, other in zip(ours.rows, theirs.rows, strict=True):
            assert one.env_steps == other.env_steps and list(one.metrics) == list(other.metrics)
            for name, values in one.metrics.items():
                np.testing.assert_array_equal(values[lanes], other.metrics[name][lanes])
    for ours, theirs in zip(seen[shared][1], seen[alone][1], strict=True):
        np.testing.assert_array_equal(ours.returns, theirs.returns)
    worked = [share for share, method in team.calls if method == "advance"]
    assert worked == [0, 1, 2, 0, 1, 2]  # lanes 0, 1 | 2 | 11 ... of blocks of two
    team.calls.clear()
    shared.advance([], [0, 6])
    assert [share for share, method in team.calls if method == "advance"] == [0]


def test_copies_across_shares_use_state_before_the_exchange():
    team = FakeTeam()
    returns = []
    for factory in (factory_over(team), FACTORY):
        population, _ = made(factory)
        refills = [
            Refill(lane, configured(factory, learning_rate=10.0 ** -(1 + lane / 4)), SEARCH, lane)
            for lane in range(12)
        ]
        turned = [
            LaneChange(0, configured(factory, gamma=0.95), 2),  # from another share
            LaneChange(2, configured(factory, gamma=0.96), 0),  # ... which takes over this one's
            LaneChange(1, configured(factory, gamma=0.97), 0),  # within the share
            LaneChange(5, configured(factory, gamma=0.98)),
        ]
        population.advance(refills, range(12))
        population.change(turned)
        population.advance([], range(12))
        returns.append([result.returns for result in population.evaluate(range(12))])
    np.testing.assert_array_equal(*returns)


def test_dead_share_is_restored_from_save_and_replayed_calls(tmp_path):
    deaths = []
    team = FakeTeam(dies=lambda share, method, number: deaths.pop() if deaths else "")
    population, resolved = made(factory_over(team))
    refills = [Refill(lane, resolved, SEARCH, lane) for lane in range(12)]
    population.advance(refills, range(12))
    population.save(tmp_path / "saved")
    population.advance([], range(12))
    team.calls.clear()
    deaths.append("late")
    before = population.advance([], range(12))
    assert team.deaths == 1
    back = [method for share, method in team.calls if share == 0]
    assert back == ["advance", "make", "restore", "advance", "advance"]  # from the save on, again
    again, _ = made(factory_over(FakeTeam()))
    again.restore(tmp_path / "saved")
    again.advance([], range(12))
    np.testing.assert_array_equal(
        again.advance([], range(12)).metrics["skill"], before.metrics["skill"]
    )


def test_one_host_per_machine_compiles_first():
    team = FakeTeam()
    population, _ = made(factory_over(team))
    population.compile()
    population.compile()
    compiled = [share for share, method in team.calls if method == "compile"]
    assert compiled == [0, 1, 2] and population.compiles == 1


def test_lanes_that_kill_three_workers_in_a_row_are_abandoned():
    team = FakeTeam(dies=lambda share, method, number: "early" if method == "advance" else "")
    population, resolved = made(factory_over(team))
    with pytest.raises(WorkerError, match="3 workers in a row died"):
        population.advance([Refill(0, resolved, SEARCH, 0)], [0])


def test_worker_errors_keep_their_type(tmp_path):
    class Broken(AnalyticShares):
        def check(self, resolved):
            raise ConfigError("no such knob")

        def resolve(self, config):
            return super().resolve(config) if config["gamma"] else 1 / config["gamma"]

    team = FakeTeam()
    team._source = lambda neighbours, warn: Broken(FACTORY, 3)
    team.replace(0)
    factory = factory_over(team)
    population, resolved = made(factory)
    with pytest.raises(ConfigError, match="no such knob"):
        factory.check(resolved)
    with pytest.raises(WorkerError, match="ZeroDivisionError: float division by zero"):
        configured(factory, gamma=0.0)
    with pytest.raises(WorkerError, match="is empty"):
        population.evaluate([0])


def test_program_that_kills_workers_fails_only_its_trials(tmp_path):
    """As lack of memory does: the other buckets run on."""

    def dies(share, method, number):
        return "early" if method == "advance" and team.small[share] == "64x64" else ""

    class Watching(FakeTeam):
        def __init__(self, **given):
            super().__init__(**given)
            self.small = {}

        def _one(self, share, method, args):
            self.small[share] = args[0] if args else ""
            return super()._one(share, method, args)

    team = Watching(dies=dies)
    asked = samples.study(samples.WITH_BUCKETS)
    asked = dataclasses.replace(asked, budget=Budget(trials=24, max_failures=100))
    result = run(asked, tmp_path / "s", factory_over(team), (), samples.quick())
    assert result.state == "finished"
    with Journal(tmp_path / "s") as journal:
        states = {(row.bucket, str(row.state)) for row in journal.trials()}
    assert ("64x64", "failed") in states and ("16", "finished") in states
    assert not {("64x64", "finished"), ("16", "failed"), ("32", "failed")} & states


def test_checkpoint_with_different_worker_count_is_refused(tmp_path):
    population, _ = made(factory_over(FakeTeam()))
    population.save(tmp_path / "saved")
    with pytest.raises(StoreError, match=r"4 lanes on each of 3 workers, but .* 6 on each of 2"):
        made(factory_over(FakeTeam(shares=2)))[0].restore(tmp_path / "saved")
    with pytest.raises(StoreError, match="is not a checkpoint"):
        population.restore(tmp_path)


def test_worker_without_shared_folder_sends_its_files(tmp_path, monkeypatch):
    population, resolved = made(factory_over(FakeTeam()))
    population.advance([Refill(0, resolved, SEARCH, 0)], [0])
    population.save(tmp_path / "seen")
    monkeypatch.setattr("hpo.search.cluster.worker_shards._has_token", lambda record, token: False)
    population.save(tmp_path / "sent")
    for share in range(3):
        seen, sent = (pack(tmp_path / name / f"share-{share}") for name in ("seen", "sent"))
        assert seen == sent and list(seen) == ["lanes.json"]


def test_packed_folder_is_unpacked_unchanged(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_bytes(b"\x00\xff")
    (tmp_path / "a" / "d").write_text("")
    unpack(pack(tmp_path / "a"), tmp_path / "e")
    assert pack(tmp_path / "e") == {"b/c": b"\x00\xff", "d": b""}


def test_study_resumes_after_cluster_is_lost(tmp_path):
    class Gone(FakeTeam):
        left = 120

        def call(self, calls):
            self.left -= 1
            if self.left < 0:
                raise SearchError("the Ray cluster is gone")
            return super().call(calls)

    asked, alone = STUDIES["asha with buckets"], tmp_path / "alone"
    run(asked, alone, FACTORY, (), samples.quick())
    errors = []
    for _ in range(40):
        try:
            run(asked, tmp_path / "s", factory_over(Gone()), (), samples.quick(commit_seconds=0))
            break
        except SearchError as error:
            errors.append(str(error))
    assert len(errors) >= 2 and all("gone" in error for error in errors)
    assert tables_equal(alone, tmp_path / "s") == []


def test_a_host_resolves_each_configuration_once(tmp_path):
    """Those of trials whose lanes it has, and on the first host all that are asked about."""

    @dataclasses.dataclass(frozen=True)
    class Counting(AnalyticShares):
        seen: list = dataclasses.field(default_factory=list)

        def resolve(self, config):
            self.seen.append(repr(config))
            return super().resolve(config)

    team = FakeTeam()
    team._source = lambda neighbours, warn: Counting(FACTORY, 3)
    for share in range(3):
        team.replace(share)
    run(STUDIES["pbt"], tmp_path / "s", factory_over(team), (), samples.quick())
    for host in team.hosts:
        seen = host._begun_source.seen
        assert len(seen) > 3 and len(seen) == len(set(seen))


def test_default_lane_count_is_split_over_shares():
    team = FakeTeam()
    population = SharedPopulation(team, configured(factory_over(team)), None)
    assert population.lanes == 12
    assert [entry.lanes for entry in team.hosts[0]._populations.values()] == [4]


@pytest.mark.parametrize("lanes", [5, 8])
@pytest.mark.parametrize("name", STUDIES)
def test_partially_filled_blocks_give_the_same_study(tmp_path, monkeypatch, lanes, name):
    """Of three shares with blocks of two, rounding up to 6, 12, 24 would be other searches."""
    monkeypatch.setattr("hpo.search.cluster.worker_shards._ATTEMPTS", ATTEMPTS)
    factory = dataclasses.replace(FACTORY, lanes=lanes)
    study = dataclasses.replace(STUDIES[name], budget=Budget(trials=2 if name == "pbt" else 9))
    run(study, tmp_path / "alone", factory, (), samples.quick())
    team = FakeTeam(factory, dies=at_random(f"{lanes}"))
    machine = AnalyticShares(factory, team.shares).machine
    shared = SharedFactory(team, machine)
    population, _ = made(shared, None)
    assert population.lanes == lanes
    run(study, tmp_path / "shared", shared, (), samples.quick(commit_seconds=0.05))
    assert tables_equal(tmp_path / "alone", tmp_path / "shared") == []


@pytest.mark.parametrize(
    ("total", "shares", "tile", "devices"),
    [(t * n, s, t, d) for t in (1, 2, 4) for n in range(1, 9) for s in (1, 2, 3) for d in (2, 4)],
)
def test_every_lane_has_a_distinct_place_and_tiles_stay_whole(total, shares, tile, devices):
    division = Division.of(total, shares, tile, devices)
    assert division.total == total and division.own % (tile * devices) == 0
    assert division.unit % tile == 0 and total % division.unit == 0
    places = set()
    for lane in range(total):
        unit, rest = divmod(lane, division.unit)
        own, share = divmod(unit, shares)
        place = own * division.unit + rest
        assert place < division.own and place % tile == lane % tile
        places.add((share, place))
    assert len(places) == total
    counts = [sum(share == mine for share, _ in places) for mine in range(shares)]
    assert max(counts) - min(counts) <= division.unit
    whole = total % (shares * tile * devices) == 0
    assert division.own * shares == total or not whole


def test_checkpoint_with_different_lane_count_is_refused(tmp_path):
    small, large = (dataclasses.replace(FACTORY, lanes=lanes) for lanes in (5, 6))

    def shared(factory):
        machine = AnalyticShares(factory, 3).machine
        return made(SharedFactory(FakeTeam(factory), machine), None)[0]

    shared(small).save(tmp_path / "saved")
    with pytest.raises(StoreError, match="resume with as many workers"):
        shared(large).restore(tmp_path / "saved")
    shared(small).restore(tmp_path / "saved")


TEXT = """\
env: CartPole-v1
env_steps: 20k
fixed: {hidden_sizes: [8]}
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
executor: {type: ray, workers: 2}
budget: {trials: 9}
"""


def test_shared_lanes_use_tile_of_single_process():
    """Two workers of two devices: four lanes are two tiles of two, one for each worker."""
    study = loads(TEXT + "population: {lanes: 4}\n")
    factory = LocalFactory(study)
    default = factory.resolve(study.default())
    alone = factory.program_of(default)
    division = factory.divide(default, None, 2, 2)
    assert (division.total, division.tile, division.unit) == (alone.lanes, alone.tile, alone.tile)
    share = factory.make_share(default, division)
    assert (share.program.tile, share.lanes) == (alone.tile, 4)
    again = factory.divide(default, division.total, 2, 2)
    assert again == division, "what a resumed study asks for"
    before = factory.divide(default, 8, 2, 2)
    assert (before.total, before.unit, before.own) == (8, 4, 4), "as studies begun before have it"


def test_preview_shows_how_lanes_are_divided():
    report, note = preview(loads(TEXT + "population: {lanes: 4}\n"))
    assert note == "" and report.buckets[0][1].lanes == 4
    assert "; 4 lanes over 2 workers;" in report.text()
    assert not any("lanes is auto" in text for text in report.warnings)
    report, _ = preview(loads(TEXT))
    assert any("up to 2 times the lanes of one process" in text for text in report.warnings)
    text = TEXT.replace("workers: 2", "workers: 3")
    with pytest.raises(ConfigError, match=r"2 tiles of 2 lanes .* use executor.workers: 2"):
        preview(loads(text + "population: {lanes: 4}\n"))
    away = text.replace("workers: 3", "workers: 3, address: auto")
    report, _ = preview(loads(away + "population: {lanes: 4}\n"))
    assert any("if nodes have as many devices" in text for text in report.warnings)


def test_workers_with_different_packages_are_distinguished():
    head = Machine("cpu", 1, {"jax": "0.10", "brax": "0.14"})
    node = Machine("cpu", 1, {"jax": "0.10"})
    assert (
        _machine_differences(head, node) == "brax 0.14"
        and _machine_differences(node, head) == "brax absent"
    )
    assert _machine_differences(head, head) == ""
