import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from scripted import ENDINGS, HIGH, LOW, FormulaPolicy, Scripted

from td3.collect.base import Episode
from td3.collect.collector import BLOCK, Collector
from td3.environments import InProcessVectorEnv
from td3.errors import EnvironmentFault

STATE, ACTION, NEXT_STATE, REWARD, TERMINATED = slice(0, 3), slice(3, 5), slice(5, 8), 8, 9
MODES = ["row", AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP]


def vectorised(mode, count: int, make=Scripted):
    if mode == "row":
        row = InProcessVectorEnv([make() for _ in range(count)])
        row.seeds_episodes = False  # as Gymnasium's own vector environments, to which it is compared
        return row
    return SyncVectorEnv([make] * count, autoreset_mode=mode)


def collector(mode="row", seeds=(0,), envs=1, noise=0.0, make=Scripted) -> Collector:
    return Collector(vectorised(mode, len(seeds) * envs, make), list(seeds), LOW, HIGH, noise)


def collected(collector: Collector, rounds: int, policy=None) -> tuple[list[np.ndarray], list[Episode]]:
    """All rows of each member, and all episodes."""
    rows, episodes = [], []
    for _ in range(rounds):
        new_rows, new_episodes = collector.step(collector.act(policy))
        rows.append(new_rows)
        episodes += new_episodes
    return list(np.concatenate(rows, axis=1)), episodes


def by_environment(rows: np.ndarray, shortest: int) -> dict[int, list[tuple]]:
    """Transitions in order, per environment (its seed is the first number of its states), cut to a common length."""
    sorted_rows = {}
    for row in rows:
        sorted_rows.setdefault(int(row[0]), []).append(tuple(row.tolist()))
    assert min(len(each) for each in sorted_rows.values()) >= shortest
    return {seed: each[:shortest] for seed, each in sorted_rows.items()}


@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize("mode", MODES[1:])
def test_every_autoreset_mode_gives_the_same_transitions(mode, envs):
    policy = FormulaPolicy()
    ((expected,), _), ((rows,), _) = (
        collected(collector(kind, envs=envs), rounds, policy) for kind, rounds in (("row", 60), (mode, 100))
    )
    assert by_environment(rows, 60) == by_environment(expected, 60)
    assert len(by_environment(rows, 60)) == envs


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("envs", [1, 3])
def test_every_row_follows_the_script(mode, envs):
    (rows,), _ = collected(collector(mode, envs=envs), 50, FormulaPolicy())
    for seed in {*rows[:, 0]}:
        environment = Scripted()
        state, _ = environment.reset(seed=int(seed))
        for row in rows[rows[:, 0] == seed]:
            next_state, reward, terminated, truncated, _ = environment.step(row[ACTION])
            np.testing.assert_array_equal(row[STATE], state)
            np.testing.assert_array_equal(row[NEXT_STATE], next_state)
            assert (row[REWARD], row[TERMINATED]) == (np.float32(reward), terminated)
            state = environment.reset()[0] if terminated or truncated else next_state


@pytest.mark.parametrize("mode", MODES)
def test_the_next_state_of_a_last_step_is_the_true_last_observation(mode):
    (rows,), _ = collected(collector(mode, envs=2), 40, FormulaPolicy())
    same_episode = rows[:, NEXT_STATE][:, 1] == rows[:, STATE][:, 1]
    later = rows[:, NEXT_STATE][:, 2] > rows[:, STATE][:, 2]
    assert same_episode.all()
    assert later.all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("ending", "flag"), [((True, False), 1.0), ((False, True), 0.0), ((True, True), 1.0)], ids=["end", "cut", "both"]
)
def test_only_a_termination_is_marked_as_one(mode, ending, flag):
    def make():
        return Scripted(lengths=(3,), endings=(ending,))

    (rows,), _ = collected(collector(mode, make=make), 40, FormulaPolicy())
    last = np.round(rows[:, NEXT_STATE][:, 2]) == 3
    assert last.sum() == (10 if mode == AutoresetMode.NEXT_STEP else 13)
    assert (rows[last, TERMINATED] == flag).all()
    assert (rows[~last, TERMINATED] == 0).all()


def test_a_termination_on_the_last_allowed_step_is_a_termination():
    def make():
        return gym.wrappers.TimeLimit(Scripted(lengths=(3,), endings=((True, False),)), 3)

    (rows,), _ = collected(collector(make=make), 12, FormulaPolicy())
    assert rows[:, TERMINATED].tolist() == [0, 0, 1] * 4


def test_a_time_limit_is_not_a_termination():
    def make():
        return gym.wrappers.TimeLimit(Scripted(lengths=(100,)), 3)

    (rows,), episodes = collected(collector(make=make), 12, FormulaPolicy())
    assert rows[:, TERMINATED].sum() == 0
    assert [(episode.length, episode.timed_out) for episode in episodes] == [(3, True)] * 4


@pytest.mark.parametrize("mode", MODES)
def test_episodes_have_their_true_return_length_and_kind_of_end(mode):
    (rows,), episodes = collected(collector(mode), 60, FormulaPolicy())
    expected = []
    for number in range(len(episodes)):
        rewards = rows[rows[:, 1] == number, REWARD]
        timed_out = ENDINGS[number % 3] == (False, True)
        expected.append((0, pytest.approx(rewards.sum(), abs=1e-4), len(rewards), timed_out, {}))
    assert [tuple(episode) for episode in episodes] == expected
    seed = int(rows[0, 0])
    assert [episode.length for episode in episodes] == [(3, 5, 2, 4)[(n + seed) % 4] for n in range(len(episodes))]


def test_episodes_belong_to_the_member_whose_environment_ended():
    per_member, episodes = collected(collector(seeds=(3, 4), envs=2), 30, FormulaPolicy())
    for member, rows in enumerate(per_member):
        finished = [episode for episode in episodes if episode.member == member]
        total = sum(len({*rows[rows[:, 0] == seed][:, 1]}) - 1 for seed in {*rows[:, 0]})
        assert total <= len(finished) <= total + 2


def test_next_step_autoreset_cannot_serve_several_seeds():
    with pytest.raises(EnvironmentFault, match=r"one seed only: make it with autoreset_mode=SAME_STEP"):
        collector(AutoresetMode.NEXT_STEP, seeds=(0, 1))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", ["reward", "observation"])
def test_nan_or_infinity_ends_with_a_sentence(mode, fault):
    def make():
        return Scripted(lengths=(100,), fault=fault, fault_at=5)

    broken = collector(mode, make=make)
    collected(broken, 4, FormulaPolicy())
    with pytest.raises(EnvironmentFault, match=r"an environment gave NaN or infinity in an observation or a reward"):
        collected(broken, 1, FormulaPolicy())


@pytest.mark.parametrize("mode", MODES)
def test_nan_in_a_true_last_observation_is_found(mode):
    def make():
        return Scripted(lengths=(3,), fault="observation", fault_at=3)

    with pytest.raises(EnvironmentFault, match="NaN or infinity"):
        collected(collector(mode, make=make), 4, FormulaPolicy())


def test_an_infinity_may_not_hide_behind_its_opposite():
    class Balanced(Scripted):
        def step(self, action):
            _, _, terminated, truncated, info = super().step(action)
            return np.array([np.inf, -np.inf, 0], np.float32), 1.0, terminated, truncated, info

    with pytest.raises(EnvironmentFault, match="NaN or infinity"):
        collected(collector(make=Balanced), 1, FormulaPolicy())


def test_a_reward_too_large_for_the_memory_is_infinite():
    class Rich(Scripted):
        def step(self, action):
            observation, _, terminated, truncated, info = super().step(action)
            return observation, 1e39, terminated, truncated, info

    with pytest.raises(EnvironmentFault, match="NaN or infinity"):
        collected(collector(make=Rich), 1, FormulaPolicy())


def test_an_observation_that_changes_its_shape_is_refused():
    with pytest.raises(EnvironmentFault, match=r"shape \(2,\), but its observation_space says \(3,\)"):
        collected(collector(make=lambda: Scripted(fault="shape")), 5, FormulaPolicy())


def test_warm_up_actions_are_uniform_over_the_true_range():
    actions = np.concatenate([collector_.act(None)[0] for collector_ in rounds(collector(envs=8), 2_000)])
    low, high = np.float32(LOW), np.float32(HIGH)
    assert ((actions >= low) & (actions <= high)).all()
    shares = (actions - low) / (high - low)
    for dimension in range(2):
        counts, _ = np.histogram(shares[:, dimension], 10, (0, 1))
        assert abs(counts / len(shares) - 0.1).max() < 0.01  # 4 standard deviations of 16,000 draws
    assert abs(np.corrcoef(shares.T)[0, 1]) < 0.03


def rounds(collector_: Collector, count: int):
    """The collector at each of so many rounds, its environments standing still."""
    for number in range(count):
        collector_.round = number
        yield collector_


def test_exploration_noise_is_a_share_of_half_the_range_in_each_dimension():
    middle = np.array([1.0, 0.375], np.float32)
    noise = np.concatenate(
        [
            c.act(lambda states: np.broadcast_to(middle, (1, 8, 2)))[0] - middle
            for c in rounds(collector(envs=8, noise=0.1), 2_000)
        ]
    )
    np.testing.assert_allclose(noise.std(0), [0.1 * 2.0, 0.1 * 0.125], rtol=0.03)
    np.testing.assert_allclose(noise.mean(0) / [0.2, 0.0125], 0, atol=0.03)
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.03


def test_every_environment_and_round_has_its_own_noise():
    middle = np.array([1.0, 0.375], np.float32)
    drawn = [
        c.act(lambda states: np.broadcast_to(middle, (1, 4, 2)))[0].tobytes()
        for c in rounds(collector(envs=4, noise=0.1), 600)
    ]
    assert len(set(drawn)) == 600
    actions = np.frombuffer(b"".join(drawn), np.float32)
    assert len(np.unique(actions)) > 0.95 * len(actions)


def test_noisy_actions_are_clipped_to_the_range():
    low, high = np.float32(LOW), np.float32(HIGH)
    for c in rounds(collector(envs=4, noise=1.0), 50):
        actions = c.act(lambda states: np.broadcast_to(high, (1, 4, 2)))
        assert ((actions >= low) & (actions <= high)).all()
        assert (actions == high).any()


def test_without_noise_the_actions_are_the_policys():
    plain = collector(envs=2)
    np.testing.assert_array_equal(plain.act(FormulaPolicy()), FormulaPolicy()(plain.states[None]))


@pytest.mark.parametrize("policy", [None, FormulaPolicy()], ids=["warm-up", "exploration"])
def test_what_a_member_sees_depends_on_its_own_seed_only(policy):
    together, _ = collected(collector(seeds=(5, 6, 7), envs=2, noise=0.3), 300, policy)
    for seed, rows in zip((5, 6, 7), together, strict=True):
        (alone,), _ = collected(collector(seeds=(seed,), envs=2, noise=0.3), 300, policy)
        np.testing.assert_array_equal(rows, alone)
    assert not np.array_equal(together[0][:, ACTION], together[1][:, ACTION])


def test_the_same_seed_twice_collects_the_same():
    first, second = (collected(collector(seeds=(9,), noise=0.2), 100, FormulaPolicy())[0][0] for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_environments_of_one_member_have_seeds_of_their_own():
    (rows,), _ = collected(collector(envs=4), 5)
    assert len({*rows[:, 0]}) == 4


def test_an_action_space_with_a_shape_gets_actions_of_that_shape():
    class Matrix(Scripted):
        def __init__(self):
            super().__init__()
            self.action_space = gym.spaces.Box(-1, 1, (2, 3), np.float32)
            self.shapes = []

        def step(self, action):
            self.shapes.append(np.shape(action))
            return self.observation(0.0), 0.0, False, False, {}

    environment = Matrix()
    row = InProcessVectorEnv([environment])
    matrix = Collector(row, [0], [-1.0] * 6, [1.0] * 6, 0.1)
    rows, _ = matrix.step(matrix.act(None))
    assert environment.shapes == [(2, 3)]
    assert rows.shape == (1, 1, 3 + 6 + 3 + 2)


ENDLESS = 10**9


def row_of(*lengths: int) -> InProcessVectorEnv:
    return InProcessVectorEnv([Scripted(lengths=(length,)) for length in lengths])


def test_the_actions_of_an_endless_episode_are_not_kept_forever(monkeypatch):
    monkeypatch.setattr("td3.collect.recovery.LONGEST_REPLAY", 100)
    steps = Collector(row_of(ENDLESS, 9), [0], LOW, HIGH, 0.0)
    collected(steps, 2_000)
    assert len(steps.state()["actions"]) == 2_000 % 9
    assert len(steps._history) <= 2 * BLOCK
    alone = Collector(row_of(ENDLESS), [0], LOW, HIGH, 0.0)
    collected(alone, 100)
    assert len(alone.state()["actions"]) == 100
    collected(alone, 1)
    assert len(alone.state()["actions"]) == 0


def test_after_an_endless_episode_a_resumed_run_begins_a_new_one_and_says_so(monkeypatch):
    monkeypatch.setattr("td3.collect.recovery.LONGEST_REPLAY", 100)
    before, after = (Collector(row_of(ENDLESS, 70), [3], LOW, HIGH, 0.0) for _ in range(2))
    collected(before, 200)
    assert after.restore(before.state()) == []
    assert [(fault.member, fault.environment) for fault in after.faults] == [(0, 0)]
    assert "the unfinished episode of 200 env steps could not be replayed" in after.faults[0].reason
    assert after.states[1].tobytes() == before.states[1].tobytes()
    assert after.states[0].tolist() != before.states[0].tolist()
    (rows,), episodes = collected(after, 10)
    (expected,), expected_episodes = collected(before, 10)
    np.testing.assert_array_equal(rows[1::2], expected[1::2])
    assert episodes == expected_episodes == [Episode(0, episodes[0].episode_return, 70, False)]


def test_a_long_episode_that_lost_its_process_is_begun_again_and_told(monkeypatch):
    monkeypatch.setattr("td3.collect.recovery.LONGEST_REPLAY", 100)

    class OneProcess(InProcessVectorEnv):
        """Where the first environment's process dies, the second is new too."""

        def replace(self, index):
            self.environments[:2] = Scripted(lengths=(ENDLESS,)), Scripted(lengths=(ENDLESS,))
            return [1 - index]

    environments = [Scripted(lengths=(ENDLESS,), fault="reward", fault_at=151), Scripted(lengths=(ENDLESS,))]
    steps = Collector(OneProcess(environments), [0], LOW, HIGH, 0.0)
    collected(steps, 150)
    (rows,), _ = collected(steps, 1)
    assert [fault.environment for fault in steps.faults] == [0, 1]
    assert "150 env steps could not be replayed" in steps.faults[1].reason
    assert rows[:, 2].tolist() == [0, 0]  # both are first steps of new episodes
    assert np.isfinite(rows).all()


@pytest.mark.parametrize("mode", MODES)
def test_time_outs_are_stored_as_terminations_only_where_that_is_asked_for(mode):
    stored = {}
    for timeouts in ("bootstrap", "terminate"):
        made = Collector(vectorised(mode, 2), [0], LOW, HIGH, 0.0, timeouts)
        (rows,), episodes = collected(made, 60, FormulaPolicy())
        stored[timeouts] = rows
    differing = stored["terminate"][:, TERMINATED] - stored["bootstrap"][:, TERMINATED]
    assert differing.sum() == sum(episode.timed_out for episode in episodes) > 0
    assert np.array_equal(np.delete(stored["terminate"], TERMINATED, 1), np.delete(stored["bootstrap"], TERMINATED, 1))
