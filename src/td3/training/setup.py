"""Before anything is trained: the device, the environment's spaces, and whether memory and disk suffice."""

import math
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from gymnasium.vector import AutoresetMode

from td3.algorithm.agent import Agent, Task
from td3.algorithm.replacing import Replacement
from td3.algorithm.step_01_replay_buffer import ReplayBuffer, make_replay_buffer
from td3.algorithm.streams import derive_seed
from td3.collect import require_cluster
from td3.config import TrainConfig
from td3.environments import TaskSpaces, check_environment
from td3.environments.goals import GoalTask
from td3.environments.guarded import Make, opened
from td3.environments.side_effects import pytorch_kept
from td3.environments.spec import EnvFactory
from td3.environments.vector import VectorSource, check_vector
from td3.errors import ConfigError
from td3.pixels.encoder import EncoderPlan
from td3.pixels.frame_buffer import FrameReplayBuffer, frame_buffer_bytes
from td3.pixels.layout import convolutions_for, encoder_shapes, layout_of
from td3.resources import gigabytes, require_memory, require_network_memory
from td3.run.checkpoints import Checkpoint
from td3.settings import TD3Config


def arguments_of_env(config: TrainConfig, factory: EnvFactory | VectorSource | None) -> dict[str, Any]:
    """What `make_environment` is called with."""
    return config.env_arguments if factory is None else {**config.env_arguments, "env": factory}


def probe_environment(config: TrainConfig, make: Make | VectorSource, first_step: int = 0) -> TaskSpaces:
    """The spaces of the run's environment, from one that is made and closed; refuses what cannot be trained.

    A vector environment is made once, and is then the run's; one that begins at a later env step has another seed.
    """
    if isinstance(make, VectorSource):
        if config.workers not in ("auto", "none"):
            raise ConfigError(
                f"{config.env} is a vector environment, which steps its environments itself, but workers is "
                f"{config.workers}: leave out --workers."
            )
        if "hindsight" in config.variant:
            raise ConfigError(
                f"variant hindsight needs an environment with goals, and {config.env} is a vector environment."
            )
        seed = derive_seed(config.seed, "vector environment", first_step) % 2**31
        vector = make.training(config.seeds * config.envs, seed)
        if vector.autoreset == AutoresetMode.NEXT_STEP:
            _refuse_interrupted_returns(
                config,
                f"{config.env} skips a row of an environment at each of its resets (NEXT_STEP): make it with "
                "autoreset_mode=AutoresetMode.SAME_STEP of gymnasium.vector, or train with envs=1.",
            )
        spaces = check_vector(vector)
    else:
        if config.workers == "ray":
            _refuse_interrupted_returns(
                config, "collectors of Ray send theirs in chunks, in any order: use other --workers, or --envs 1."
            )
            require_cluster(config.ray_address)
        with pytorch_kept(), opened(make) as probe:
            spaces = check_environment(probe, config.env)
            if "hindsight" in config.variant:
                _check_hindsight(config, GoalTask(probe, config.env).max_episode_steps)
    if spaces.frames and config.workers == "ray":
        raise ConfigError(f"{config.env} gives images, and collectors of Ray send numbers: use other --workers.")
    if spaces.frames and config.normalize_observations:
        raise ConfigError(
            f"{config.env} gives images, and --normalize-observations is for numbers: leave it out, the encoder "
            "brings images to a common scale by itself."
        )
    return spaces


def _refuse_interrupted_returns(config: TrainConfig, reason: str) -> None:
    """Refuse n-step returns where the rows of one environment are not a fixed distance apart: most would have one."""
    if "n-step" in config.variant and config.td3.n_step > 1 and config.envs > 1:
        raise ConfigError(f"variant n-step needs the rows of all environments in turn, and {reason}")


def _check_hindsight(config: TrainConfig, max_episode_steps: int) -> None:
    """Refuse what whole episodes cannot be had from."""
    if config.workers == "ray":
        raise ConfigError(
            "variant hindsight needs whole episodes, which collectors of Ray do not send: use other --workers."
        )
    if (rounds := -(-config.steps // config.envs)) <= max_episode_steps:
        raise ConfigError(
            f"no update would happen: variant hindsight stores transitions after {max_episode_steps:,} rounds of the "
            f"environments, and the run has {rounds:,}. Raise --steps or lower --envs."
        )


def require_room(
    config: TrainConfig, spaces: TaskSpaces, checkpoint: Checkpoint | None = None, *, resumed: bool = False
) -> bool:
    """Refuse a run that would fill the memory or the disk; says whether a GPU's replay buffer goes into host RAM."""
    buffer_size, device = buffer_capacity(config), choose_device(config.device)
    if config.buffer_device == "gpu" and device.type == "cpu" and not resumed:
        raise ConfigError(
            "gpu needs a GPU, and this run is on the CPU: leave it out, or train on a GPU.", "buffer_device"
        )
    needed = config.seeds * buffer_bytes(spaces, buffer_size)
    networks = config.seeds * network_bytes(spaces, config.td3)
    advice = "free some, or resume it on a machine that has more." if resumed else ""
    sizes = config.td3.critic_sizes
    require_network_memory(networks, sizes, config.td3.batch_size, config.seeds, device, advice)
    in_host_ram = require_memory(
        needed, buffer_size, config.seeds, device, config.buffer_device, advice, reserved=networks
    )
    out = (config.out or Path("runs")).absolute()
    try:
        folder = next(place for place in (out, *out.parents) if place.is_dir())  # out may be a mount point or a link
        total, _, free = shutil.disk_usage(folder)
    except OSError as error:
        raise ConfigError(f"{out} cannot be used ({error.strerror}): give another --out.") from None
    needed -= sum(shard.bytes for shard in checkpoint.shards) if checkpoint else 0  # they are there already
    if config.save_every != 0 and needed > 0.9 * free and total > 0:
        what = "further checkpoints" if resumed else "the checkpoints"
        room = f"{what} of this run need {gigabytes(needed)}, and {folder} has {gigabytes(free)} free: make room"
        if resumed:
            raise ConfigError(f"{room}, or move the run to another disk and resume it there.")
        raise ConfigError(
            f"{room}, give another --out, lower --td3.buffer-size, or train without checkpoints by --save-every 0."
        )
    return in_host_ram


def choose_device(name: str) -> torch.device:
    """The device of this name; auto takes a GPU if there is one."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device cuda was asked for, but PyTorch finds no GPU here: use --device cpu or auto.")
    return torch.device("cuda" if name == "cuda" or (name == "auto" and torch.cuda.is_available()) else "cpu")


def encoder_plan(spaces: TaskSpaces, settings: TD3Config) -> EncoderPlan | None:
    """The encoder for a task whose observations are images."""
    layout = layout_of(spaces.observation_shape, spaces.frames) if spaces.frames else None
    if layout is None:
        return None
    shift = min(settings.random_shift, min(layout.height, layout.width) // 20)
    layers = convolutions_for(layout)
    shapes = encoder_shapes(layout, layers, settings.image_features)
    return EncoderPlan(*layout, shapes, tuple(stride for *_, stride in layers), shift)


def make_agent(
    config: TrainConfig, spaces: TaskSpaces, device: torch.device, replacements: Sequence[Replacement] = ()
) -> Agent:
    """The newly initialized agent of a run, with functions in the place of some steps."""
    encoder, bounds = encoder_plan(spaces, config.td3), (spaces.action_low, spaces.action_high)
    task = Task(spaces.state_size, *bounds, normalized=config.normalize_observations, encoder=encoder)
    capacity = buffer_capacity(config)
    return Agent.create(task, config.td3, config.member_seeds, device, replacements=replacements, capacity=capacity)


def make_buffer(
    members: int, buffer_size: int, spaces: TaskSpaces, device: torch.device, in_host_ram: bool
) -> ReplayBuffer:
    """The replay buffer of a task: of vectors, or of images, whose frames are kept once."""
    if spaces.frames:
        frame = spaces.frames, spaces.state_size // spaces.frames
        return FrameReplayBuffer(members, buffer_size, *frame, spaces.action_size, device, in_host_ram=in_host_ram)
    sizes = spaces.state_size, spaces.action_size
    return make_replay_buffer(members, buffer_size, *sizes, device, in_host_ram=in_host_ram)


def buffer_bytes(spaces: TaskSpaces, buffer_size: int) -> int:
    """What the replay buffer of one seed takes."""
    if not spaces.frames:
        return buffer_size * 4 * (2 * spaces.state_size + spaces.action_size + 2)
    frame_size = spaces.state_size // spaces.frames
    return frame_buffer_bytes(buffer_size, spaces.frames, frame_size, spaces.action_size)


def network_bytes(spaces: TaskSpaces, settings: TD3Config) -> int:
    """About what the networks of one seed take: weights, targets, gradients, moments, and activations of a batch."""
    plan = encoder_plan(spaces, settings)
    inputs = settings.image_features if plan else spaces.state_size
    actor = (inputs, *settings.actor_sizes, spaces.action_size)
    critic = (inputs + spaces.action_size, *settings.critic_sizes, 1)
    weights = sum((a + 1) * b for sizes in (actor, critic, critic) for a, b in pairwise(sizes))
    weights += sum(math.prod(shape) for shape in plan.shapes) if plan else 0
    # Of a batch: a row of every layer of the three networks, forward and backward, and the states themselves.
    batch = settings.batch_size * (2 * (sum(actor) + 2 * sum(critic)) + 2 * spaces.state_size)
    return 4 * (5 * weights + batch)


def buffer_capacity(config: TrainConfig) -> int:
    """Rows of the replay buffer: no more than a run stores."""
    if config.dataset:
        return config.td3.buffer_size  # as many as the dataset has
    return min(config.td3.buffer_size, -(-config.steps // config.envs) * config.rows_per_round)
