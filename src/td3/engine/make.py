"""Which engine a run gets, and whether it computes what eager execution computes."""

from collections.abc import Sequence

from td3.algorithm.agent import Agent
from td3.algorithm.step_01_replay_buffer import ReplayBuffer
from td3.config import TrainConfig
from td3.engine.check import TOLERANCE, TOLERANCE_TF32, find_unrepeated, max_difference
from td3.engine.engine import Engine
from td3.engine.updates import Execution
from td3.engine.watching import Unrepeated
from td3.errors import ConfigError


def make_engine(agent: Agent, buffer: ReplayBuffer, config: TrainConfig, threads: int) -> Engine:
    """The engine that a configuration asks for. For `auto`: CUDA graphs on a GPU, recorded updates on a CPU.

    Images, and an engine that fails its check, are executed eagerly. Make and use it within `backend_flags`; replaced
    steps have passed `try_changes`.
    """
    seeds, settings = config.member_seeds, config.td3
    unrepeated = [] if agent.changes is None else find_unrepeated(agent, seeds, settings)
    execution = _execution(agent, buffer, config, unrepeated)
    slower = "this run uses eager execution, which is slower."
    if config.engine == "auto":
        notices = [f"{one.what}; {'a resumed run will differ, and ' * one.lost}{slower}" for one in unrepeated]
    else:
        notices = [f"{one.what}; a resumed run will differ." for one in unrepeated if one.lost]
    allowed = 0.0 if execution != "graph" else TOLERANCE_TF32 if config.precision == "tf32" else TOLERANCE

    def engine(agent: Agent, buffer: ReplayBuffer) -> Engine:
        return Engine(agent, buffer, seeds, settings, execution, threads, config.envs, allowed)

    if execution != "eager":
        try:
            drift = max_difference(agent, seeds, settings, engine, alone=settings.train_freq == "episode")
        except Exception as error:
            if agent.changes is None:
                raise
            # Eager execution has just done the same updates: what was replaced cannot be recorded.
            notices.append(
                f"the replaced steps cannot be {'recorded' if execution == 'recorded' else 'put into a CUDA graph'} "
                f"({type(error).__name__}: {error}); {slower}"
            )
            drift, execution = 0.0, "eager"
        if not drift <= allowed:  # NaN too
            name = "recordings" if execution == "recorded" else "CUDA graphs"
            notices.append(
                f"updates by {name} differ from eager ones by {drift:.1e} (allowed: {allowed:.0e}); {slower}"
            )
            execution = "eager"
    made = engine(agent, buffer)
    made.notices += notices
    return made


def _execution(agent: Agent, buffer: ReplayBuffer, config: TrainConfig, unrepeated: Sequence[Unrepeated]) -> Execution:
    """How updates will be executed; raises `ConfigError` where what was asked for is not possible."""
    fitting: Execution = "graph" if buffer.rows.is_cuda else "recorded"
    why_not = ""
    if agent.encoder is not None:
        why_not = "observations that are images are encoded eagerly"
    elif unrepeated:
        why_not = unrepeated[0].what
    if config.engine == "auto":
        return "eager" if why_not else fitting
    if config.engine == "eager":
        return "eager"
    if config.engine != fitting:
        where = "a GPU" if buffer.rows.is_cuda else "a CPU"
        why_not = f"this run is on {where}"
    if why_not:
        raise ConfigError(f"engine {config.engine} was asked for, but {why_not}: use --engine auto or eager.")
    return fitting
