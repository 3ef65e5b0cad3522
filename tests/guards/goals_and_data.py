"""Guards of hindsight, behavior cloning, offline training and saved weights, and the faults that they must catch."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from offline.test_transitions import SPACES, columns
from shapes import unchecked
from variants import test_behavior_cloning as cloning
from variants import test_hindsight as hindsight_tests

import td3
from td3.environments import goals
from td3.offline import transitions
from td3.run import agent_file, initial_weights
from td3.training import beginning
from td3.variants import behavior_cloning, hindsight

from .bugs import Plant, bug
from .guards import guard

# Hindsight


@guard
def relabelled_goals_are_of_the_same_episode_and_not_before() -> None:
    hindsight_tests.test_goals_are_achieved_in_the_same_episode_and_not_before()


@guard
def a_relabelled_transition_differs_in_its_goal_and_reward_alone() -> None:
    hindsight_tests.test_a_copy_differs_in_its_goal_and_what_follows_from_it_alone()


@guard
def relabelled_terminations_are_the_environments() -> None:
    hindsight_tests.test_terminations_are_the_environments_where_it_says_so()


@guard
def hindsight_goes_on_bit_for_bit() -> None:
    hindsight_tests.test_a_restored_collector_goes_on_bit_for_bit()


@guard
def a_seed_has_the_same_goals_alone_and_among_others() -> None:
    hindsight_tests.test_a_seed_gets_the_same_alone_and_among_others()


def window_with(change) -> type:
    """The window, whose arrays of episodes and numbers are changed before they are used."""

    class Faulty(hindsight.HindsightWindow):
        def pass_through(self, rows, episodes, uniform):
            return super().pass_through(*change(rows, episodes, uniform))

    return Faulty


@bug("relabelled_goals_are_of_the_same_episode_and_not_before")
def goals_are_taken_across_episodes(plant: Plant) -> None:
    plant(hindsight.HindsightWindow, window_with(lambda rows, episodes, uniform: (rows, 0 * episodes, uniform)))


@bug("relabelled_goals_are_of_the_same_episode_and_not_before")
def goals_are_always_the_next_state(plant: Plant) -> None:
    plant(hindsight.HindsightWindow, window_with(lambda rows, episodes, uniform: (rows, episodes, 0 * uniform)))


@bug("relabelled_goals_are_of_the_same_episode_and_not_before")
def goals_are_those_of_the_state_before(plant: Plant) -> None:
    right = hindsight.RowParts.of.__func__

    def of(cls, task, state_size, action_size):
        return right(cls, task, state_size, action_size)._replace(next_achieved=task.achieved)

    plant.method(hindsight.RowParts, "of", classmethod(of))


@bug("a_relabelled_transition_differs_in_its_goal_and_reward_alone")
def the_next_state_keeps_the_old_goal(plant: Plant) -> None:
    right = hindsight.RowParts.of.__func__

    def of(cls, task, state_size, action_size):
        return right(cls, task, state_size, action_size)._replace(next_desired=task.desired)

    plant.method(hindsight.RowParts, "of", classmethod(of))


@bug("a_relabelled_transition_differs_in_its_goal_and_reward_alone")
def a_relabelled_transition_keeps_its_reward(plant: Plant) -> None:
    plant.method(goals.GoalTask, "rewards", lambda self, achieved, desired: -np.ones(len(achieved)))


@bug("relabelled_terminations_are_the_environments")
def a_relabelled_transition_keeps_its_termination(plant: Plant) -> None:
    plant.method(goals.GoalTask, "terminated", lambda self, achieved, desired: None)


@bug("hindsight_goes_on_bit_for_bit")
def the_window_is_not_restored(plant: Plant) -> None:
    plant.method(hindsight.HindsightWindow, "restore", lambda self, state: None)


@bug("a_seed_has_the_same_goals_alone_and_among_others")
def goals_depend_on_the_number_of_seeds(plant: Plant) -> None:
    def change(rows, episodes, uniform):
        return rows, episodes, (uniform + 0.1 * len(uniform)) % 1

    plant(hindsight.HindsightWindow, window_with(change))


# Behavior cloning


@guard
def the_loss_of_behavior_cloning_is_right_by_hand() -> None:
    cloning.test_the_loss_is_minus_the_scaled_q_value_plus_the_squared_distance()


@guard
@unchecked()
def the_actor_learns_the_actions_of_the_data() -> None:
    cloning.test_without_q_values_the_actor_learns_the_actions_of_the_data()


@guard
def the_scale_of_q_values_is_constant_and_each_members_own() -> None:
    cloning.test_the_scale_is_a_constant_for_the_gradient()
    cloning.test_critics_stay_and_each_member_has_a_scale_of_its_own()


def cloning_with(*, sign=1.0, detached=True, own=True, normalized=True):
    """The replacement of step 13 in other words, with a fault."""

    def improve(actor, critics, optimizer, state, settings, batch):
        action = actor(state)
        q_values = critics.first_frozen(state, action)
        size = q_values.abs().mean(-1) if own else q_values.abs().mean()
        scale = settings.bc_alpha / (size.detach() if detached else size)
        half = actor.action_range.half if normalized else 1.0
        loss = sign * ((action - batch.action) / half).square().mean((-2, -1)) - scale * q_values.mean(-1)
        (gradient,) = torch.autograd.grad(loss.sum(), actor.parameters)
        optimizer.step_(gradient)
        return loss.detach()

    return improve


HAND, LEARNS = "the_loss_of_behavior_cloning_is_right_by_hand", "the_actor_learns_the_actions_of_the_data"
SCALE = "the_scale_of_q_values_is_constant_and_each_members_own"


def plant_cloning(plant: Plant, faulty) -> None:
    """Where the package has it, and where the tests do."""
    plant(behavior_cloning.improve_actor_near_data_, faulty)
    plant._monkeypatch.setattr(cloning, "improve_actor_near_data_", faulty)


@bug(HAND, LEARNS)
def behavior_cloning_moves_away_from_the_data(plant: Plant) -> None:
    plant_cloning(plant, cloning_with(sign=-1.0))


@bug(SCALE)
def the_scale_of_q_values_has_a_gradient(plant: Plant) -> None:
    plant_cloning(plant, cloning_with(detached=False))


@bug(SCALE)
def all_seeds_have_one_scale_of_q_values(plant: Plant) -> None:
    plant_cloning(plant, cloning_with(own=False))


@bug(HAND)
def distances_are_in_the_environments_units(plant: Plant) -> None:
    plant_cloning(plant, cloning_with(normalized=False))


# Recorded transitions


@guard
def recorded_transitions_end_where_their_episode_does() -> None:
    rows = transitions.rows_of_arrays(columns(next_observations=None), SPACES, "data")
    assert rows[:, 0].tolist() == [0, 1, 3, 4]
    assert rows[:, 3].tolist() == [1, 2, 4, 4]
    rows = transitions.rows_of_arrays(columns(), SPACES, "data")
    assert rows[:, -1].tolist() == [0, 0, 0, 0, 1, 0]


@bug("recorded_transitions_end_where_their_episode_does")
def a_recorded_time_out_is_followed_by_the_next_episode(plant: Plant) -> None:
    right = transitions.rows_of_arrays

    def rows_of_arrays(arrays, spaces, source):
        return right({**arrays, "timeouts": np.zeros(len(arrays["rewards"]))}, spaces, source)

    plant(right, rows_of_arrays)


@bug("recorded_transitions_end_where_their_episode_does")
def a_recorded_time_out_is_a_termination(plant: Plant) -> None:
    right = transitions.rows_of_arrays

    def rows_of_arrays(arrays, spaces, source):
        return right({**arrays, "terminals": arrays["terminals"] | arrays["timeouts"]}, spaces, source)

    plant(right, rows_of_arrays)


@unchecked()
def offline_tensors(**settings):
    """Agent tensors of an offline run on 40 transitions of Rail-v0, and of the run that brought them."""
    from td3.run.checkpoints import Checkpoints

    small = {"hidden_sizes": (8, 8), "batch_size": 8, "eval_episodes": 1, "eval_every": 0, "device": "cpu"}
    with tempfile.TemporaryDirectory() as folder:
        first = td3.train("Rail-v0", steps=40, learning_starts=10, out=Path(folder) / "first", **small)
        run = td3.train_offline(first.path, steps=20, out=Path(folder) / "run", **small, **settings)
        found = [Checkpoints(each.path).newest()[0] for each in (run, first)]
        states = np.concatenate([rows for _, rows in found[1].rows()], 1)[0, :, :2]
        return found[0].named("agent."), found[1].named("agent."), states


@guard
def an_offline_run_normalizes_by_its_dataset() -> None:
    agent, _, states = offline_tensors()
    assert np.allclose(agent["observations.mean"][0], states.mean(0), atol=1e-5)
    assert agent["observations.count"].tolist() == [[40]]


@bug("an_offline_run_normalizes_by_its_dataset")
def the_dataset_is_put_in_without_being_looked_at(plant: Plant) -> None:
    right = beginning.begin

    def begin(trainer, rows):
        if rows is None:
            return
        before = {name: tensor.clone() for name, tensor in trainer.agent.normalizer.tensors().items()}
        right(trainer, rows)
        for name, tensor in trainer.agent.normalizer.tensors().items():
            tensor.copy_(before[name])

    plant(right, begin)


# Saved weights


@guard
def a_run_starts_from_all_saved_networks() -> None:
    from .worlds import small_agent

    spaces = td3.environments.TaskSpaces(3, (-2.0, 0.5), (1.0, 7.25), (3,), (2,))
    saved, fresh = small_agent((1,)), small_agent((2,))
    with torch.no_grad():
        for tensor in (saved.actor_target.parameters, saved.critics_target.parameters):
            tensor += 1
    with tempfile.TemporaryDirectory() as folder:
        agent_file.save_agent(Path(folder), saved, 0, spaces, {"seed": 1, "env_steps": 5, "updates": 5})
        initial_weights.start_from_(fresh, Path(folder), [2], spaces)
    for name in ("actor", "actor_target", "critics", "critics_target"):
        assert torch.equal(fresh.tensors()[name], saved.tensors()[name]), name


@bug("a_run_starts_from_all_saved_networks")
def targets_begin_as_copies_of_saved_networks(plant: Plant) -> None:
    right = agent_file.load_tensors_of

    def load_tensors_of(folder):
        facts, tensors = right(folder)
        return facts, {name: tensor for name, tensor in tensors.items() if "target" not in name}

    plant(right, load_tensors_of)


@bug("a_run_starts_from_all_saved_networks")
def only_the_actor_is_taken(plant: Plant) -> None:
    right = agent_file.load_tensors_of

    def load_tensors_of(folder):
        facts, tensors = right(folder)
        return facts, {name: tensor for name, tensor in tensors.items() if name.startswith("actor.")}

    plant(right, load_tensors_of)
