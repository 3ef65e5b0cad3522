# %% [markdown]
# # TD3 in fifteen steps
#
# Call every step yourself, on a live batch: the functions are the ones that `td3 train` runs. Each step has its
# drawing, a cell that calls it, a cell to change, and a cell that checks what must hold. At the end: train, watch,
# break something, compare.
#
# The page `td3 explain` shows the same steps moving. The division into fifteen steps is that of the course *Deep
# Reinforcement Learning 2.0*; the algorithm is by [Fujimoto et al., 2018](https://arxiv.org/abs/1802.09477), with
# [the author's code](https://github.com/sfujim/TD3).

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

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from IPython.display import SVG, display

from td3.algorithm.agent import Agent, Task
from td3.algorithm.step_01_replay_buffer import make_replay_buffer
from td3.algorithm.step_02_actor import ActionRange, make_actor_and_target
from td3.algorithm.step_03_twin_critics import make_twin_critics_and_targets
from td3.algorithm.step_04_to_09_bellman_target import (
    bellman_target,
    min_q,
    q_values_of_targets,
    sample_batch,
    smooth_target_action,
    target_action,
)
from td3.algorithm.step_10_to_12_critic_update import critic_loss, improve_critics_, q_values_of_critics
from td3.algorithm.step_13_actor_update import improve_actor_
from td3.algorithm.step_14_to_15_polyak import polyak_actor_target_, polyak_critics_target_
from td3.algorithm.streams import MemberStreams
from td3.engine import update_once
from td3.environments import make_environment
from td3.settings import TD3Config

torch.set_num_threads(1)
SEED = 0
SETTINGS = TD3Config(
    hidden_sizes=(16, 16), actor_learning_rate=1e-3, critic_learning_rate=1e-3, batch_size=64, buffer_size=10_000
)


def drawing(number):
    """The drawing of a step, if the checkout is at hand."""
    path = Path("../docs/steps") / f"step_{number:02}.svg"
    if path.exists():
        display(SVG(filename=str(path)))


def same(left, right):
    """Whether two tensors hold the same numbers."""
    return bool(torch.equal(left, right))


# %% [markdown]
# The problem is **Rail**: a cart on a line. The state is (position, velocity), the action a force from -1 to 1. Being
# away from the middle costs; falling off the rail costs 60 and terminates the episode; after 100 steps it is truncated
# by the time limit, which is no termination.

# %%
environment = make_environment("Rail-v0")
state, _ = environment.reset(seed=SEED)
print("state", state, "action range", environment.action_space.low, environment.action_space.high)

# %% [markdown]
# ## Before training
# ### 1. Make the replay buffer
# A ring of the newest transitions (the lessons say replay buffer): when it is full, the oldest are overwritten.

# %%
drawing(1)
buffer = make_replay_buffer(members=1, capacity=SETTINGS.buffer_size, state_size=2, action_size=1)


def play(buffer, steps, policy=None, seed=SEED):
    """Fill a buffer: act, step, store. `policy` gives an action for a state; without one actions are random."""
    random, rows = np.random.default_rng(seed), []
    state, _ = environment.reset(seed=seed)
    for _ in range(steps):
        action = random.uniform(-1, 1, 1) if policy is None else policy(state)
        next_state, reward, terminated, truncated, _ = environment.step(action.astype(np.float32))
        rows.append([*state, *action, *next_state, reward, terminated])
        state = environment.reset()[0] if terminated or truncated else next_state
    buffer.add_(torch.tensor(np.array(rows), dtype=torch.float32)[None])


play(buffer, 1_000)
print("rows", tuple(buffer.rows.shape), buffer.rows.dtype, "- kept:", len(buffer))

# %%
# Change this: a ring of 300 slots after 1,000 transitions.
small = make_replay_buffer(1, 300, 2, 1)
play(small, 1_000)
print("kept:", len(small), "of", small.added)

# %%
assert len(buffer) == 1_000
assert len(small) == 300
newest = small.rows[0, (small.added - 1) % 300]
assert same(newest, buffer.rows[0, 999]), "the newest survives"

# %% [markdown]
# ### 2. Build the actor and its target
# The target starts as an exact copy, is never trained, and only follows.

# %%
drawing(2)
action_range = ActionRange(torch.tensor([-1.0]), torch.tensor([1.0]))
actor, actor_target = make_actor_and_target([SEED], 2, action_range, SETTINGS)
print("weights of the actor", tuple(actor.parameters.shape))
print("actions", actor(torch.zeros(1, 3, 2)).detach().flatten().tolist())

# %%
# Change this: bounds that are not symmetric. Every action stays within them.
lopsided, _ = make_actor_and_target([SEED], 2, ActionRange(torch.tensor([-0.2]), torch.tensor([1.0])), SETTINGS)
many = lopsided(torch.randn(1, 1_000, 2, generator=torch.Generator().manual_seed(0)) * 50)
print("from", many.min().item(), "to", many.max().item())

# %%
assert same(actor.parameters, actor_target.parameters)
assert many.min() >= -0.2
assert many.max() <= 1.0

# %% [markdown]
# ### 3. Build two critics and their targets
# Critic 2 is no copy of critic 1: each has initial weights of its own. Their targets are copies.

# %%
drawing(3)
critics, critics_target = make_twin_critics_and_targets([SEED], 2, 1, SETTINGS)
forces = torch.linspace(-1, 1, 101).view(1, -1, 1)
curves = critics(torch.zeros(1, 101, 2), forces).detach()
plt.plot(forces.flatten(), curves[0, 0], label="critic 1")
plt.plot(forces.flatten(), curves[1, 0], label="critic 2")
plt.xlabel("force")
plt.ylabel("score in the middle of the rail")
plt.legend()
plt.show()

# %%
# Change this: another seed gives other critics.
others, _ = make_twin_critics_and_targets([SEED + 1], 2, 1, SETTINGS)
print("first weights", critics.parameters[:, 0, 0].tolist(), others.parameters[:, 0, 0].tolist())

# %%
assert not same(critics.parameters[0], critics.parameters[1])
assert same(critics.parameters, critics_target.parameters)

# %% [markdown]
# ## One update
# All of it is kept in an `Agent`: six networks, two optimizers, a counter. From here on we use the agent's networks.

# %%
agent = Agent.create(Task(2, [-1.0], [1.0]), SETTINGS, [SEED])
random = MemberStreams([SEED])

# %% [markdown]
# ### 4. Sample a batch of transitions
# Not the last few transitions: rows from the whole replay buffer, drawn again for every update.

# %%
drawing(4)
batch = sample_batch(buffer, random, SETTINGS.batch_size)
for name, tensor in batch._asdict().items():
    print(f"{name:12} {tuple(tensor.shape)} {tensor.dtype}")

# %%
# Change this: the same seed draws the same rows, another seed others.
again = sample_batch(buffer, MemberStreams([SEED]), SETTINGS.batch_size)
other = sample_batch(buffer, MemberStreams([SEED + 1]), SETTINGS.batch_size)

# %%
assert same(again.state, batch.state)
assert not same(other.state, batch.state)

# %% [markdown]
# ### 5. The target actor gives the next action
# Not the action that was taken next, and not the online actor's.

# %%
drawing(5)
next_action = target_action(agent.actor_target, batch.next_state)
print(tuple(next_action.shape), next_action[0, :4].flatten().tolist())

# %%
# Change this: perturb the online actor. The next action must not change.
disturbed = agent.copied()
disturbed.actor.parameters.detach().add_(1.0)

# %%
assert same(target_action(disturbed.actor_target, batch.next_state), next_action)

# %% [markdown]
# ### 6. Add clipped noise and clamp to the action range
# Target policy smoothing, not exploration: no environment receives this noise.

# %%
drawing(6)
smoothed_action = smooth_target_action(next_action, random, 0.2, 0.5, agent.actor.action_range)
print("moved by up to", (smoothed_action - next_action).abs().max().item())

# %%
# Change this: no noise at all, and a lot of it.
quiet = smooth_target_action(next_action, MemberStreams([SEED]), 0.0, 0.5, agent.actor.action_range)
loud = smooth_target_action(next_action, MemberStreams([SEED]), 5.0, 0.5, agent.actor.action_range)

# %%
assert same(quiet, next_action)
assert (loud - next_action).abs().max() <= 0.5 + 1e-6
assert loud.abs().max() <= 1

# %% [markdown]
# ### 7. Both target critics evaluate the smoothed action
# One smoothed action, two Q-values.

# %%
drawing(7)
target_q_values = q_values_of_targets(agent.critics_target, batch.next_state, smoothed_action)
print(tuple(target_q_values.shape), target_q_values[:, 0, :3].tolist())

# %%
# Change this: how often is critic 1 the lower one?
print("critic 1 is lower in", (target_q_values[0] < target_q_values[1]).float().mean().item(), "of the rows")

# %%
assert not target_q_values.requires_grad, "no gradient passes through a target"

# %% [markdown]
# ### 8. Keep the smaller Q-value
# Row by row, not critic by critic.

# %%
drawing(8)
next_q = min_q(target_q_values)
print("the minimum", next_q.mean().item(), "the mean", target_q_values.mean().item())

# %%
# Change this: two Q-values by hand.
print(min_q(torch.tensor([[[1.0, 5.0]], [[3.0, 2.0]]])))

# %%
assert (next_q <= target_q_values).all()

# %% [markdown]
# ### 9. Form the Bellman target
# After a termination nothing follows: y = r. A time-out is not a termination.

# %%
drawing(9)
target_q = bellman_target(batch.reward, batch.terminated, next_q, SETTINGS.gamma)
ended = batch.terminated.bool()
print("ended rows:", int(ended.sum()), "their y:", target_q[ended].tolist())

# %%
# Change this: a reward of -1, a future of -10, without and with termination.
reward, future = torch.tensor([[-1.0, -1.0]]), torch.tensor([[-10.0, -10.0]])
by_hand = bellman_target(reward, torch.tensor([[0.0, 1.0]]), future, 0.99)
print(by_hand)

# %%
assert torch.allclose(by_hand, torch.tensor([[-10.9, -1.0]]))
assert same(target_q[ended], batch.reward[ended])

# %% [markdown]
# ### 10. Both critics evaluate the stored action
# Only for the action that was really taken are the reward and the next state known.

# %%
drawing(10)
q_values = q_values_of_critics(agent.critics, batch.state, batch.action)
print(tuple(q_values.shape), "gradient flows:", q_values.requires_grad)

# %%
# Change this: what would the critics predict for the opposite action?
print((q_values_of_critics(agent.copied().critics, batch.state, -batch.action) - q_values).abs().mean().item())

# %%
assert q_values.requires_grad

# %% [markdown]
# ### 11. Measure the loss of both critics
# A mean over the batch, a sum over the two critics; shapes that match.

# %%
drawing(11)
loss = critic_loss(q_values, target_q)
print("loss", loss.item())

# %%
# Change this: the fault of shape (B, 1) against (B,) compares every row with every other.
wrong = (q_values[0].detach().squeeze(0).unsqueeze(1) - target_q.squeeze(0)).square()
print("shape", tuple(wrong.shape), "instead of", tuple(target_q.squeeze(0).shape))

# %%
halves = [(q_values[twin] - target_q).square().mean() for twin in (0, 1)]
assert torch.allclose(loss, halves[0] + halves[1])

# %% [markdown]
# ### 12. Backpropagate and improve both critics
# Both critics move, and nothing else. Lessons say SGD; in practice it is Adam.

# %%
drawing(12)
before = agent.copied()
improve_critics_(agent.critics, agent.critics_optimizer, loss)
moved = (agent.critics.parameters - before.critics.parameters).abs().amax(-1).flatten().tolist()
print("largest move of critic 1 and 2:", moved)

# %%
# Change this: two hundred such steps on the same batch bring the loss down.
student = before.copied()
for _ in range(200):
    practice = critic_loss(q_values_of_critics(student.critics, batch.state, batch.action), target_q)
    improve_critics_(student.critics, student.critics_optimizer, practice)
print("loss", loss.item(), "->", practice.item())

# %%
assert min(moved) > 0
assert practice < loss
assert same(agent.actor.parameters, before.actor.parameters)
assert same(agent.critics_target.parameters, before.critics_target.parameters)

# %% [markdown]
# ## Every second update
# ### 13. Improve the actor, uphill on critic 1
# At its own action, not at the stored one; on critic 1 alone.

# %%
drawing(13)
before = agent.copied()
actor_loss = improve_actor_(agent.actor, agent.critics, agent.actor_optimizer, batch.state)
with torch.no_grad():
    q_before = agent.critics(batch.state, before.actor(batch.state))[0].mean()
    q_after = agent.critics(batch.state, agent.actor(batch.state))[0].mean()
print("mean Q1 of the actor's actions", q_before.item(), "->", q_after.item())

# %%
# Change this: turn critic 2 upside down. The actor's step stays the same.
upside_down = before.copied()
upside_down.critics.parameters.detach()[1].mul_(-1)
improve_actor_(upside_down.actor, upside_down.critics, upside_down.actor_optimizer, batch.state)

# %%
assert q_after > q_before
assert same(agent.critics.parameters, before.critics.parameters), "critic 1 is read, never changed"
assert same(upside_down.actor.parameters, agent.actor.parameters)

# %% [markdown]
# ### 14. Polyak-average the actor target
# Half a percent of the way, each time.

# %%
drawing(14)
before = agent.copied()
polyak_actor_target_(agent.actor_target, agent.actor, SETTINGS.tau)
print("largest move", (agent.actor_target.parameters - before.actor_target.parameters).abs().max().item())

# %%
# Change this: how many such steps until half of the way is gone?
print(np.log(0.5) / np.log(1 - SETTINGS.tau))

# %%
expected = torch.lerp(before.actor_target.parameters, before.actor.parameters, SETTINGS.tau)
assert torch.allclose(agent.actor_target.parameters, expected)

# %% [markdown]
# ### 15. Polyak-average both critic targets
# In the same update as the actor target, not at every one.

# %%
drawing(15)
polyak_critics_target_(agent.critics_target, agent.critics, SETTINGS.tau)
print("largest move", (agent.critics_target.parameters - before.critics_target.parameters).abs().max().item())

# %%
# Change this: tau of 1 copies the whole network.
copied = before.copied()
polyak_critics_target_(copied.critics_target, copied.critics, 1.0)

# %%
expected = torch.lerp(before.critics_target.parameters, before.critics.parameters, SETTINGS.tau)
assert torch.allclose(agent.critics_target.parameters, expected)
assert torch.allclose(copied.critics_target.parameters, copied.critics.parameters)

# %% [markdown]
# ## Train
# `update_once` samples a batch (step 4), has `update` call steps 5 to 15 in order, and counts. Around it: act with
# exploration noise, store, repeat. That is all of TD3.

# %%
STEPS, RANDOM_STEPS = (720, 500) if FAST else (8_000, 1_000)


def train(improve=update_once, steps=STEPS, seed=SEED):
    """A learner after so many env steps, and its returns along the way."""
    world = make_environment("Rail-v0")
    learner = Agent.create(Task(2, [-1.0], [1.0]), SETTINGS, [seed])
    past, numbers, noise = make_replay_buffer(1, steps, 2, 1), MemberStreams([seed]), np.random.default_rng(seed)
    state, _ = world.reset(seed=seed)
    curve = []
    for step in range(steps):
        action = noise.uniform(-1, 1, 1)
        if step >= RANDOM_STEPS:
            with torch.no_grad():
                chosen = learner.actor(torch.as_tensor(state)[None, None])[0, 0].numpy()
            action = np.clip(chosen + 0.3 * noise.normal(size=1), -1, 1)
        next_state, reward, terminated, truncated, _ = world.step(action.astype(np.float32))
        row = np.array([*state, *action, *next_state, reward, terminated], np.float32)
        past.add_(torch.from_numpy(row)[None, None])
        state = world.reset()[0] if terminated or truncated else next_state
        if step >= RANDOM_STEPS:
            improve(learner, past, numbers, SETTINGS)
        if (step + 1) % (steps // 12) == 0:
            curve.append((step + 1, evaluate(learner)))
    return learner, np.array(curve)


def evaluate(learner, episodes=5):
    """The mean return without exploration noise."""
    world, total = make_environment("Rail-v0"), 0.0
    for episode in range(episodes):
        (state, _), ended = world.reset(seed=1_000 + episode), False
        while not ended:
            with torch.no_grad():
                action = learner.actor(torch.as_tensor(state)[None, None])[0, 0].numpy()
            state, reward, terminated, truncated, _ = world.step(action)
            total, ended = total + reward, terminated or truncated
    return total / episodes


learner, curve = train()
print("return", curve[0, 1], "->", curve[-1, 1])

# %% [markdown]
# ## Watch
# Ten carts from ten starts: position over time, driven by the trained actor.

# %%
world = make_environment("Rail-v0")
for start in np.linspace(-1.5, 1.5, 10):
    (state, _), path = world.reset(options={"state": (start, 0.0)}), []
    for _ in range(60):
        path.append(state[0])
        with torch.no_grad():
            action = learner.actor(torch.as_tensor(state)[None, None])[0, 0].numpy()
        state, _, terminated, _, _ = world.step(action)
        if terminated:
            break
    plt.plot(path)
plt.xlabel("env step")
plt.ylabel("position")
plt.show()

# %% [markdown]
# ## Break something
# One target critic instead of the smaller of two, no noise on a', no delay: without TD3's three ideas, what is left is
# DDPG.


# %%
def ddpg_update(agent, buffer, random, settings):
    """TD3 without its three ideas."""
    batch = sample_batch(buffer, random, settings.batch_size)
    next_action = target_action(agent.actor_target, batch.next_state)
    next_q = q_values_of_targets(agent.critics_target, batch.next_state, next_action)[0]
    target_q = bellman_target(batch.reward, batch.terminated, next_q, settings.gamma)
    loss = critic_loss(q_values_of_critics(agent.critics, batch.state, batch.action), target_q)
    improve_critics_(agent.critics, agent.critics_optimizer, loss)
    agent.updates += 1
    improve_actor_(agent.actor, agent.critics, agent.actor_optimizer, batch.state)
    polyak_actor_target_(agent.actor_target, agent.actor, settings.tau)
    polyak_critics_target_(agent.critics_target, agent.critics, settings.tau)


ddpg, ddpg_curve = train(ddpg_update)

# %% [markdown]
# ## Compare
# What each predicts for its own actions, minus the exact value from dynamic programming. Above zero a learner predicts
# more than the best possible policy could earn. There is no noise in the rewards: DDPG overestimates because its actor
# selects the critic's errors upwards (`td3 ladder all` measures it over ten seeds, with and without reward noise).

# %%
from td3_lessons.ladder.exact import solve

exact = solve(nodes=41 if FAST else 161)
starts = np.random.default_rng(1).uniform((-1.6, -0.8), (1.6, 0.8), (200, 2)).astype(np.float32)


def overestimation(learner):
    """Predicted minus exact value of the actor's own actions, mean over the starts."""
    states = torch.from_numpy(starts)[None]
    with torch.no_grad():
        actions = learner.actor(states)
        predicted = learner.critics(states, actions)[0, 0].numpy()
    return float((predicted - exact.q(starts.astype(float), actions[0, :, 0].numpy().astype(float))).mean())


print("TD3", round(overestimation(learner), 2), "DDPG", round(overestimation(ddpg), 2))
plt.plot(curve[:, 0], curve[:, 1], label="TD3")
plt.plot(ddpg_curve[:, 0], ddpg_curve[:, 1], "--", label="DDPG")
plt.xlabel("env steps")
plt.ylabel("return")
plt.legend()
plt.show()

# %%
assert int(learner.updates[0]) == STEPS - RANDOM_STEPS, "updates really ran"
assert np.isfinite(curve).all()
assert FAST or curve[-1, 1] > curve[0, 1]
assert FAST or overestimation(ddpg) > overestimation(learner), "DDPG predicts more than TD3"
