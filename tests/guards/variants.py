"""Guards of the variants, and the faults that they must catch."""

import torch
from variants.episodes import Episodes, every_row

from td3.config import TD3Config
from td3.variants import n_step

from .bugs import Plant, bug
from .guards import guard

# n-step


@guard
def n_step_returns_are_those_of_a_slow_reference() -> None:
    for seed, envs, capacity in ((0, 1, 20), (1, 1, 200), (2, 3, 40), (3, 2, 37)):
        episodes = Episodes(seed, envs, capacity, 40)
        batch = every_row(episodes, n_step.n_step_batch, TD3Config(n_step=3, gamma=0.5))
        for index in range(len(episodes.buffer)):
            reward, state, factor = episodes.n_step(index, 3, 0.5)
            assert abs(batch.reward[0, index].item() - reward) < 1e-9
            assert batch.next_state[0, index, 0].item() == state
            assert abs(0.5 * (1 - batch.terminated[0, index].item()) - factor) < 1e-9


def n_step_with(**missing: bool):
    """The replacement of step 4 in other words, without one of its conditions."""

    def sample(buffer, random, batch_size, original, settings):
        batch, capacity = original(buffer, random, batch_size), buffer.capacity
        stride = 1 if "stride" in missing else buffer.stride
        size, last, first = buffer.widths[0], batch.indices.clone(), 1 if "first_power" in missing else 0
        reward, power = batch.reward.clone(), torch.zeros_like(batch.reward)
        for member, index in torch.cartesian_prod(*map(torch.arange, last.shape)).tolist():
            place = int(last[member, index])
            for steps in range(1, settings.n_step):
                following, row = (place + stride) % capacity, buffer.rows[member, place]
                next_row = buffer.rows[member, following]
                age = (buffer.added - 1 - place) % capacity
                ends = ("termination" not in missing and row[-1] == 1) or ("age" not in missing and age < stride)
                same = torch.equal(next_row[:size], row[-2 - size : -2])
                if ends or not (same or "state" in missing) or next_row.isnan().any():
                    break
                reward[member, index] += settings.gamma ** (steps + first) * next_row[-2]
                power[member, index] += 1
                place = following
            last[member, index] = place
        end = buffer.gather(batch.indices if "next_state" in missing else last)
        discount = settings.gamma ** (0 * power if "power" in missing else power)
        terminated = end.terminated if "power" in missing else 1 - discount * (1 - end.terminated)
        return batch._replace(reward=reward, next_state=end.next_state, terminated=terminated)

    return sample


N_STEP = "n_step_returns_are_those_of_a_slow_reference"


@bug(N_STEP)
def a_return_runs_into_the_next_episode(plant: Plant) -> None:
    plant(n_step.n_step_batch, n_step_with(state=True))


@bug(N_STEP)
def a_return_of_several_environments_mixes_them(plant: Plant) -> None:
    plant(n_step.n_step_batch, n_step_with(stride=True))


@bug(N_STEP)
def a_return_runs_from_the_newest_row_to_the_oldest(plant: Plant) -> None:
    plant(n_step.n_step_batch, n_step_with(age=True, state=True, termination=True))


@bug(N_STEP)
def later_rewards_are_discounted_once_too_often(plant: Plant) -> None:
    plant(n_step.n_step_batch, n_step_with(first_power=True))


@bug(N_STEP)
def the_value_after_n_steps_is_discounted_once(plant: Plant) -> None:
    plant(n_step.n_step_batch, n_step_with(power=True))


@bug(N_STEP)
def the_value_after_n_steps_is_that_of_the_first_next_state(plant: Plant) -> None:
    plant(n_step.n_step_batch, n_step_with(next_state=True))
