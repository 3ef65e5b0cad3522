# %% [markdown]
# # TD3 in fifteen steps
#
# Write TD3 yourself, one function a step. Each cell holds an empty function; `check` compares it with the step that
# `td3 train` runs, on the recorded update with which the page of `td3 explain` opens, and says which number should have
# been which. At the end your fifteen functions train against ours.
#
# The notebook stops at the first function that is not right. Stuck? `print(solution(9))` shows one that passes; the
# page and [the drawings](../docs/fifteen_steps.md) show what it does. The division into fifteen steps is that of the
# course *Deep Reinforcement Learning 2.0*; the algorithm is by [Fujimoto et al.,
# 2018](https://arxiv.org/abs/1802.09477), with [the author's code](https://github.com/sfujim/TD3).

# %%
# Setting up. In a checkout of the project there is nothing to do. Elsewhere (Colab, say): the address of the repository
# that this notebook came from.
REPOSITORY = ""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

if importlib.util.find_spec("td3") is None:
    if not REPOSITORY:
        raise SystemExit("Put the address of the repository into REPOSITORY above, and run this cell again.")
    if not Path("td3").exists():
        subprocess.run(["git", "clone", "--depth", "1", REPOSITORY, "td3"], check=True)
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "./td3[plots]"], check=True)
    os.chdir("td3/notebooks")

FAST = bool(os.environ.get("TD3_NOTEBOOK_FAST"))  # the tests run the notebook in a shorter form

import matplotlib.pyplot as plt
import numpy as np
import torch

from td3_lessons.explain.exercises import check, exam, solution, update  # noqa: F401  # solution is for whoever is stuck

torch.set_num_threads(1)

# %% [markdown]
# The problem is **Rail**: a cart on a line. The state is (position, velocity), the action a force from −1 to 1.
# {{task.reward}} {{task.settings}}
#
# One recorded update, without the axis of seeds that the real functions have:

# %%
for name, tensor in update().items():
    print(f"{name:24} {tuple(tensor.shape)}")

# %% [markdown]
# ## Before training
# ### 1. Make the replay buffer
# Append a row to the list; keep the newest `capacity` rows, the oldest first. {{row.numbers}}


# %%
def store(buffer, row, capacity): ...


store = check(1, store)

# %% [markdown]
# ### 2. Build the actor and its target
# Stretch the network's output to the action range: middle + half · tanh.


# %%
def policy(output, low, high): ...


policy = check(2, policy)

# %% [markdown]
# ### 3. Build two critics and their targets
# Return both targets: they are equal now, and do not change when the critics do.


# %%
def make_targets(critic_1, critic_2): ...


make_targets = check(3, make_targets)

# %% [markdown]
# ## One update
# ### 4. Sample a batch of transitions
# The numbers of `count` rows, uniform over `filled` rows, with replacement.


# %%
def sample(filled, count, generator): ...


sample = check(4, sample)

# %% [markdown]
# ### 5. The target actor gives the next action


# %%
def next_action(actor, actor_target, next_state): ...


next_action = check(5, next_action)

# %% [markdown]
# ### 6. Add clipped noise and clamp to the action range
# Two moves: sigma · normal, cut at ±c; then back into the range. {{noise.both}}


# %%
def smooth(next_action, normal, sigma, c, low, high): ...


smooth = check(6, smooth)

# %% [markdown]
# ### 7. Both target critics evaluate the smoothed action


# %%
def target_q(q1_target, q2_target, next_state, smoothed): ...


target_q = check(7, target_q)

# %% [markdown]
# ### 8. Keep the smaller Q-value
# Row by row, not critic by critic. Predict before you run: how often is critic 1 the lower one in this batch?


# %%
def min_q(q1, q2): ...


min_q = check(8, min_q)
q1, q2 = update()["target_q_values"]
print("critic 1 is the lower one in", int((q1 < q2).sum()), "of", len(q1), "rows")

# %% [markdown]
# ### 9. Form the Bellman target
# After a termination nothing follows. A time-out is no termination. This batch has both: predict their y first.


# %%
def bellman(reward, terminated, timed_out, next_q, gamma): ...


bellman = check(9, bellman)
batch = update()
for kind in ("terminated", "timed_out"):
    rows = batch[kind].bool()
    print(f"{kind}: reward", batch["reward"][rows].tolist(), "y", batch["target_q"][rows].tolist())

# %% [markdown]
# ### 10. Both critics evaluate the stored action


# %%
def predict(q1, q2, state, action, policy_action): ...


predict = check(10, predict)

# %% [markdown]
# ### 11. Measure the loss of both critics
# A mean over the batch, a sum over the two critics. {{census.largest}}


# %%
def loss(q1, q2, y): ...


loss = check(11, loss)
squares = (batch["q_values"][0] - batch["target_q"]).square()
print("largest row's share of critic 1's loss:", float(squares.max() / squares.sum()))

# %% [markdown]
# ### 12. Backpropagate and improve both critics
# `step(weights, gradient)` gives the new weights. Return the critics and the targets. {{census.rows}}


# %%
def improve(critics, targets, gradients, step): ...


improve = check(12, improve)

# %% [markdown]
# ## Every second update
# ### 13. Improve the actor, uphill on critic 1
# The actor's loss, from both critics' Q-values of its own actions. Optimizers minimize.


# %%
def actor_loss(q1, q2): ...


actor_loss = check(13, actor_loss)

# %% [markdown]
# ### 14. Polyak-average the actor target
# {{lag.half}}


# %%
def polyak(target, online, tau): ...


polyak = check(14, polyak)

# %% [markdown]
# ### 15. Polyak-average both critic targets
# In the updates in which the actor moves, and in no others.


# %%
def polyak_both(targets, critics, tau, update, delay): ...


polyak_both = check(15, polyak_both)

# %% [markdown]
# ## Exam: your TD3 against ours
# The same networks, the same rows, the same noise: after fifty updates the weights must agree.

# %%
from td3.algorithm.agent import Agent, Task
from td3.algorithm.step_01_replay_buffer import make_replay_buffer
from td3.algorithm.streams import MemberStreams
from td3.engine import update_once
from td3.environments import make_environment
from td3.settings import TD3Config
from td3_lessons.explain.record import ddpg_update

SEED = 0
SETTINGS = TD3Config(
    hidden_sizes=(16, 16), actor_learning_rate=1e-3, critic_learning_rate=1e-3, batch_size=64, buffer_size=10_000
)
STEPS, RANDOM_STEPS = (720, 500) if FAST else (8_000, 1_000)


def act(learner, state):
    """The actor's action, without noise."""
    with torch.no_grad():
        return learner.actor(torch.as_tensor(state)[None, None])[0, 0].numpy()


def train(improve=update_once, steps=STEPS, seed=SEED):
    """A learner after so many env steps, and its buffer."""
    world = make_environment("Rail-v0")
    learner = Agent.create(Task(2, [-1.0], [1.0]), SETTINGS, [seed])
    past, numbers, noise = make_replay_buffer(1, steps, 2, 1), MemberStreams([seed]), np.random.default_rng(seed)
    state, _ = world.reset(seed=seed)
    for step in range(steps):
        exploring = step < RANDOM_STEPS
        action = (
            noise.uniform(-1, 1, 1) if exploring else np.clip(act(learner, state) + 0.3 * noise.normal(size=1), -1, 1)
        )
        next_state, reward, terminated, truncated, _ = world.step(action.astype(np.float32))
        row = np.array([*state, *action, *next_state, reward, terminated], np.float32)
        past.add_(torch.from_numpy(row)[None, None])
        state = world.reset()[0] if terminated or truncated else next_state
        if not exploring:
            improve(learner, past, numbers, SETTINGS)
    return learner, past


learner, past = train()
mine = {6: smooth, 8: min_q, 9: bellman, 11: loss, 14: polyak, 15: polyak_both}
difference = exam(mine, past, learner, SETTINGS, updates=50)
print("largest difference of a weight:", difference)
assert difference < 1e-4

# %% [markdown]
# ## Watch
# Ten carts from ten starts: position over time, driven by the trained actor.

# %%
world = make_environment("Rail-v0")
for start in np.linspace(-1.5, 1.5, 10):
    (state, _), path = world.reset(options={"state": (start, 0.0)}), []
    for _ in range(60):
        path.append(state[0])
        state, _, terminated, _, _ = world.step(act(learner, state))
        if terminated:
            break
    plt.plot(path)
plt.xlabel("env step")
plt.ylabel("position")
plt.show()

# %% [markdown]
# ## Compare
# DDPG is TD3 without its three ideas. What does each predict for its own actions, and what does its policy earn? One
# seed shows how to measure, and decides nothing. {{rail.belief}} {{rail.returns}}

# %%
from td3_lessons.ladder.climb import LONG, STATES, play_rail


def predicted_and_earned(learner):
    """Mean over 200 starts of episodes: critic 1's prediction, and the discounted return of the policy."""

    def force(states):
        return learner.actor(torch.as_tensor(states, dtype=torch.float32)[None])[0, :, 0].numpy()

    with torch.no_grad():
        states = torch.as_tensor(STATES, dtype=torch.float32)[None]
        predicted = learner.critics(states, learner.actor(states))[0].mean()
        return float(predicted), float(play_rail(force, STATES, LONG).mean())


ddpg, _ = train(ddpg_update)
for name, one in (("TD3", learner), ("DDPG", ddpg)):
    predicted, earned = predicted_and_earned(one)
    print(f"{name}, seed {SEED}: predicts {predicted:.2f}, earns {earned:.2f}")
